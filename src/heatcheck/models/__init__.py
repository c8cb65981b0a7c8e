"""Models: adapters over torch, timm, torchvision, transformers and plain functions, and the embedded defaults."""
