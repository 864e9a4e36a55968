# A camera that is asked for its stream by RTSP: GStreamer's server. Its argument is the port
# on loopback, 0 for any; the one that it has is what it prints.
import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtspServer  # noqa: E402

Gst.init(None)
server = GstRtspServer.RTSPServer(address="127.0.0.1", service=sys.argv[1])
factory = GstRtspServer.RTSPMediaFactory(shared=True)
factory.set_launch(
    "( videotestsrc is-live=true ! video/x-raw,width=320,height=180,framerate=20/1"
    " ! x264enc tune=zerolatency key-int-max=20 bitrate=300 ! rtph264pay name=pay0 pt=96"
    " audiotestsrc is-live=true ! opusenc ! rtpopuspay name=pay1 pt=97 )"
)
server.get_mount_points().add_factory("/stream", factory)
if server.attach(None) == 0:
    sys.exit("the port is taken")
print(server.get_bound_port(), flush=True)
GLib.MainLoop().run()
