# A camera that is asked for its stream by RTSP: GStreamer's server. Its arguments are the port on
# loopback, 0 for any, and what it sends: picture, sound or both. It prints the port that it has.
import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtspServer  # noqa: E402

port, sends = sys.argv[1], sys.argv[2:]
media = {
    "picture": "videotestsrc is-live=true ! video/x-raw,width=320,height=180,framerate=20/1"
    " ! x264enc tune=zerolatency key-int-max=20 bitrate=300 ! rtph264pay pt=96",
    "sound": "audiotestsrc is-live=true ! opusenc ! rtpopuspay pt=97",
}

Gst.init(None)
server = GstRtspServer.RTSPServer(address="127.0.0.1", service=port)
factory = GstRtspServer.RTSPMediaFactory(shared=True)
factory.set_launch("( " + " ".join(media[x] + " name=pay%d" % n for n, x in enumerate(sends)) + " )")
server.get_mount_points().add_factory("/stream", factory)
if server.attach(None) == 0:
    sys.exit("the port is taken")
print(server.get_bound_port(), flush=True)
GLib.MainLoop().run()
