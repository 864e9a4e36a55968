package ingress

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// debianPython is the distribution's interpreter, which has the distribution's packages.
const debianPython = "/usr/bin/python3"

// camera starts a camera at a port that sends the given media, and returns the port.
func camera(t *testing.T, port string, sends ...string) (at string, stop func()) {
	t.Helper()
	if err := exec.CommandContext(t.Context(), debianPython, "-c", "import gi; gi.require_version('GstRtspServer', '1.0')").Run(); err != nil {
		t.Skip("GStreamer's RTSP server is not installed: scripts/deps.sh test does that")
	}
	cmd := exec.CommandContext(t.Context(), debianPython, append([]string{"testdata/camera.py", port}, sends...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // it was killed
		}
	}
	t.Cleanup(stop)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the camera does not say its port: %v", err)
	}
	return strings.TrimSpace(line), stop
}

// TestRTSP checks that the gateway reads a camera by RTSP. When the camera is away, its channel
// is down, and when it is back, the channel is live again.
func TestRTSP(t *testing.T) {
	t.Parallel()
	needFFmpeg(t)
	port, stop := camera(t, "0", "picture", "sound")
	g, all, c := start(t, nil)
	spec := gatewayapi.Channel{Name: "door", Number: 7, Source: gatewayapi.StoredSource("rtsp://127.0.0.1:" + port + "/stream"), BitRate: 1_000_000, To: mediaAddr}
	if err := c.SetChannel(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	ok := func(want gatewayapi.OnAir) func() bool {
		return func() bool { return state(t, g, "door").OnAir == want }
	}
	until(t, "live", ok(gatewayapi.OnAirLive))
	until(t, "two key frames", func() bool { return len(keyFrames(t, all.of(7).to(mediaTo))) > 1 })
	checkHouseFormat(t, all.of(7).to(mediaTo))
	stop()
	until(t, "down", ok(gatewayapi.OnAirDown))
	camera(t, port, "picture", "sound")
	until(t, "live again", ok(gatewayapi.OnAirLive))
	if s := state(t, g, "door"); fault(s) != "" {
		t.Errorf("%+v", s)
	}
}

// TestRTSPMedia checks that a camera may send only picture or only sound, that the channel says so, and
// that viewers get a picture in any case.
func TestRTSPMedia(t *testing.T) {
	t.Parallel()
	needFFmpeg(t)
	for sends, want := range map[string]gatewayapi.Media{"picture": gatewayapi.MediaPicture, "sound": gatewayapi.MediaSound} {
		t.Run(sends+" only", func(t *testing.T) {
			t.Parallel()
			port, _ := camera(t, "0", sends)
			g, all, c := start(t, nil)
			spec := gatewayapi.Channel{Name: "door", Number: 7, Source: gatewayapi.StoredSource("rtsp://127.0.0.1:" + port + "/stream"), BitRate: 1_000_000, To: mediaAddr}
			if err := c.SetChannel(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
			until(t, string(want), func() bool {
				now := state(t, g, "door")
				return now.Media == want && (want == gatewayapi.MediaSound) == strings.Contains(fault(now), "no picture")
			})
			until(t, "two key frames", func() bool { return len(keyFrames(t, all.of(7).to(mediaTo))) > 1 })
			if n := g.totals.failures.Load(); n > 0 {
				t.Errorf("it has ended %d times: %q", n, state(t, g, "door").Error)
			}
		})
	}
}
