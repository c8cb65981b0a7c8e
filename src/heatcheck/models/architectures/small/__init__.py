"""Networks for small pictures, with the design choices of the papers as parameters: depth, width, batch norm, biases."""
