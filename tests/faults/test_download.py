"""A download that breaks off is an error that says so; nothing of it is taken for weights."""

import hashlib
import io
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch

from heatcheck.core.types import HeatcheckError
from heatcheck.models.vision_shim import load_torchvision
from heatcheck.training.defaults import load_model


class Server:
    """Serves one file, as far as it is told to."""

    def __init__(self, content: bytes) -> None:
        self.content, self.send, self.status = content, len(content), 200
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(outer.status)
                self.send_header("Content-Length", str(len(outer.content)))
                self.end_headers()
                self.wfile.write(outer.content[: outer.send])
                self.close_connection = True

            def log_message(self, *_: object) -> None: ...

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture
def served(tmp_path, monkeypatch) -> Iterator[Server]:
    """torchvision's weights of one small network, from a server of ours."""
    models = load_torchvision("a test").models
    torch.manual_seed(0)
    file = io.BytesIO()
    torch.save(models.get_model("squeezenet1_1", weights=None).state_dict(), file)
    server = Server(file.getvalue())
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    name = f"squeezenet1_1-{hashlib.sha256(server.content).hexdigest()[:8]}.pth"
    weights = models.get_model_weights("squeezenet1_1").DEFAULT
    monkeypatch.setattr(type(weights), "url", property(lambda self: f"{server.url}/{name}"), raising=False)
    yield server
    server.http.shutdown()
    server.http.server_close()


def test_the_network_is_there(served, tmp_path):
    assert load_model("torchvision:squeezenet1_1").classes
    assert len(list(tmp_path.rglob("*.pth"))) == 1


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_download_that_breaks_off_leaves_nothing_and_the_next_one_succeeds(served, tmp_path, share):
    served.send = int(share * len(served.content))
    with pytest.raises(HeatcheckError, match="could not get torchvision's weights"):
        load_model("torchvision:squeezenet1_1")
    assert not list(tmp_path.rglob("*.pth"))
    served.send = len(served.content)
    assert load_model("torchvision:squeezenet1_1").classes


def test_bytes_that_are_not_those_promised_are_refused(served, tmp_path):
    served.content = served.content[:-10] + bytes(10)
    with pytest.raises(HeatcheckError, match="invalid hash value"):
        load_model("torchvision:squeezenet1_1")
    assert not list(tmp_path.rglob("*.pth"))


def test_a_server_that_refuses_is_an_error_with_advice(served):
    served.status = 503
    with pytest.raises(HeatcheckError, match=r"503.*write torchvision:squeezenet1_1@CHECKPOINT"):
        load_model("torchvision:squeezenet1_1")
