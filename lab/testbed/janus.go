package testbed

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

//go:embed players.js
var players string

// Janus is the WebRTC server Janus with some mountpoints, each fed by a test pattern that is
// encoded beside it.
type Janus struct {
	URL     string // URL of its API
	daemons []*Daemon
}

const (
	janusPort = 8088
	// janusMedia is the port of the first mountpoint's pictures.
	janusMedia = 5100
)

// StartJanus starts Janus at a host with channels 1 to n, which have a key frame each keyFrames.
// With keep it keeps the last key frame of each for new viewers.
func StartJanus(ctx context.Context, at *lab.LiveHost, dir string, n int, keyFrames time.Duration, keep bool) (j *Janus, err error) {
	j = &Janus{URL: fmt.Sprintf("http://%v/janus", netip.AddrPortFrom(at.Addr(), janusPort))}
	defer func() {
		if err != nil {
			j.Close()
			err = fmt.Errorf("Janus: %w", err)
		}
	}()
	folder, err := os.MkdirTemp(dir, "janus-")
	if err != nil {
		return nil, err
	}
	for name, text := range janusConfig(folder, at.Addr(), n, keep) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	log := filepath.Join(folder, "janus.log")
	d, err := StartDaemon(ctx, at, log, "janus", "--configs-folder="+folder, "--disable-colors", "--debug-level=4")
	if err != nil {
		return nil, err
	}
	j.daemons = append(j.daemons, d)
	if err := WaitListening(ctx, at, janusPort); err != nil {
		return nil, fmt.Errorf("%w: %s", err, Tail(log, lastWords))
	}
	for number := 1; number <= n; number++ {
		d, err := startPattern(ctx, at, filepath.Join(folder, fmt.Sprintf("ffmpeg%d.log", number)), number, keyFrames)
		if err != nil {
			return nil, err
		}
		j.daemons = append(j.daemons, d)
	}
	return j, nil
}

// Close ends Janus and the test patterns.
func (j *Janus) Close() {
	for _, d := range j.daemons {
		d.Stop()
	}
}

// janusConfig returns Janus's configuration files.
func janusConfig(folder string, at netip.Addr, n int, keep bool) map[string]string {
	var points strings.Builder
	for number := 1; number <= n; number++ {
		fmt.Fprintf(&points, `c%[1]d: {
	type = "rtp"; id = %[1]d; description = "c%[1]d"; audio = false; video = true; videoport = %[2]d; videopt = 96; videocodec = "h264"
	videofmtp = "profile-level-id=42e01f;packetization-mode=1"; videobufferkf = %[3]v
}
`, number, janusMedia+2*number, keep)
	}
	return map[string]string{
		"janus.jcfg": fmt.Sprintf(`general: { configs_folder = "%s"; debug_level = 4; interface = "%v" }
nat: { full_trickle = false; ice_lite = true }
plugins: { disable = "libjanus_audiobridge.so,libjanus_duktape.so,libjanus_echotest.so,libjanus_lua.so,libjanus_nosip.so,libjanus_recordplay.so,libjanus_sip.so,libjanus_textroom.so,libjanus_videocall.so,libjanus_videoroom.so,libjanus_voicemail.so" }
transports: { disable = "libjanus_mqtt.so,libjanus_nanomsg.so,libjanus_pfunix.so,libjanus_rabbitmq.so,libjanus_websockets.so" }
`, folder, at),
		"janus.transport.http.jcfg":   fmt.Sprintf("general: { json = \"compact\"; base_path = \"/janus\"; http = true; port = %d; ip = \"%v\"; https = false }\nadmin: { admin_http = false }\n", janusPort, at),
		"janus.plugin.streaming.jcfg": points.String(),
	}
}

// startPattern makes the test pattern of a channel and sends it to Janus's mountpoint, encoded as
// an ingress gateway encodes it.
func startPattern(ctx context.Context, at Place, log string, number int, keyFrames time.Duration) (*Daemon, error) {
	const rate = 30
	gap := int(keyFrames * rate / time.Second)
	return StartDaemon(ctx, at, log, "ffmpeg", "-hide_banner", "-nostdin", "-nostats", "-loglevel", "error", "-re", "-f", "lavfi", "-i",
		fmt.Sprintf("testsrc2=size=640x360:rate=%d,drawbox=x=0:y=0:w=60:h=60:color=0x%06x:t=fill", rate, gatewayapi.PatternColour(uint16(number))),
		"-pix_fmt", "yuv420p", "-c:v", "libx264", "-profile:v", "baseline", "-level:v", "3.1", "-preset", "superfast", "-tune", "zerolatency", "-threads", "1",
		"-b:v", "750k", "-maxrate", "750k", "-bufsize", "188k",
		"-x264-params", fmt.Sprintf("keyint=%d:min-keyint=%d:scenecut=0:repeat-headers=1:bframes=0:ref=1", gap, gap),
		"-f", "rtp", "-payload_type", "96", fmt.Sprintf("rtp://127.0.0.1:%d?pkt_size=1200", janusMedia+2*number))
}

// PlayBy starts a player in the page that is not Sluice's: "janus-switch", "janus-join" or "whep".
// Each key switches it to the next channel. It begins with channel 1.
func (b *Browser) PlayBy(ctx context.Context, kind, url string, channels int) error {
	if err := b.Do(ctx, players); err != nil {
		return err
	}
	if err := b.WatchPictures(ctx); err != nil {
		return err
	}
	failed, err := InPage[string](ctx, b, fmt.Sprintf(`sluicePlayer(%q, %q, %d).then(() => "", (e) => String(e))`, kind, url, channels))
	if err == nil && failed != "" {
		err = errors.New(failed)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	return b.Shows(ctx, 1)
}
