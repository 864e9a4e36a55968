package ingress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
	"github.com/sluice-net/sluice/services/cinema/media"
)

const patternSource = "test:?size=320x180&rate=20&keyframes=1s"

// TestPattern checks that a test pattern is in the house format, and that its group of pictures
// can be requested as a burst.
func TestPattern(t *testing.T) {
	t.Parallel()
	needFFmpeg(t)
	g, all, c := start(t, nil)
	spec := gatewayapi.Channel{Name: "news", Number: 7, Source: patternSource, BitRate: 500_000, To: mediaAddr}
	if err := c.SetChannel(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	if s := state(t, g, "news"); s.OnAir != gatewayapi.OnAirWaiting || s.Channel != spec {
		t.Errorf("at first: %+v", s)
	}
	until(t, "three key frames", func() bool {
		return state(t, g, "news").KeyFrames > 0 && len(all.of(7).to(mediaTo)) > 150
	})
	var s gatewayapi.ChannelState
	until(t, "a state that says what comes", func() bool {
		s = state(t, g, "news")
		return s.OnAir == gatewayapi.OnAirLive && s.Measured > 0
	})
	if fault(s) != "" || !strings.Contains(s.Producer, "ffmpeg") {
		t.Errorf("%+v", s)
	}
	if got := events(g, "news"); got[0] != "live" {
		t.Errorf("events %q", got)
	}
	checkHouseFormat(t, all.of(7).to(mediaTo))
	checkBurst(t, g, all, c)
	child := processOf(t, s.Producer)
	if err := c.DeleteChannel(t.Context(), "news"); err != nil {
		t.Fatal(err)
	}
	if g.channel("news") != nil || !all.of(7).closed || !errors.Is(syscall.Kill(child, 0), syscall.ESRCH) {
		t.Error("something of the channel is left")
	}
}

// checkHouseFormat checks the datagrams that were sent.
func checkHouseFormat(t *testing.T, out []sent) {
	t.Helper()
	var parameters []byte
	counts := map[string]int{}
	stamps := map[uint32]bool{}
	last := map[uint32]media.Packet{} // by source
	for i, p := range parsed(t, out) {
		if len(out[i].b) > packetSize {
			t.Errorf("a datagram of %d bytes", len(out[i].b))
		}
		if before, again := last[p.SSRC]; again && !p.Control && (p.Sequence != before.Sequence+1 || int32(p.Timestamp-before.Timestamp) < 0) {
			t.Errorf("%d at %d after %d at %d", p.Sequence, p.Timestamp, before.Sequence, before.Timestamp)
		}
		switch {
		case p.Control:
			counts["reports"]++
			if out[i].b[1] != senderReport {
				t.Errorf("RTCP of type %d", out[i].b[1])
			}
			continue
		case p.Video():
			counts["video"]++
		case p.Audio():
			counts["audio"]++
		}
		last[p.SSRC] = p
		if p.KeyFrame() && !stamps[p.Timestamp] {
			stamps[p.Timestamp] = true
			parameters = p.Payload
			if kind := p.Payload[0] & 0x1f; kind != 7 && kind != 24 {
				t.Errorf("a key frame begins with a unit of type %d, not with its parameters", kind)
			}
		}
	}
	if counts["video"] == 0 || counts["audio"] == 0 || counts["reports"] == 0 || len(stamps) < 2 || len(last) != 2 {
		t.Errorf("%v, %d key frames, %d sources", counts, len(stamps), len(last))
	}
	// 66: the baseline profile; 0xc0: constrained.
	if i := strings.Index(string(parameters), "\x67\x42"); i < 0 || parameters[i+2]&0xc0 != 0xc0 {
		t.Errorf("no parameters of the constrained baseline profile in %x", parameters[:min(len(parameters), 40)])
	}
}

// checkBurst requests a burst and checks it.
func checkBurst(t *testing.T, g *Gateway, all *sinks, c *gatewayapi.Ingress) {
	t.Helper()
	viewer := netip.MustParseAddrPort("192.0.2.9:40000")
	until(t, "a group of some length", func() bool { return g.channel("news").cache.Size() > 20_000 })
	if err := c.Burst(t.Context(), "news", gatewayapi.Burst{To: viewer}); err != nil {
		t.Fatal(err)
	}
	until(t, "the end of the burst", func() bool {
		return g.channel("news").bursts.Load() == 0 && len(all.of(7).to(viewer)) > 0
	})
	got := all.of(7).to(viewer)
	if p := parsed(t, got[:1])[0]; !p.KeyFrame() {
		t.Errorf("the burst begins with %+v", p)
	}
}

// processOf returns the process identifier in a producer's name.
func processOf(t *testing.T, producer string) int {
	t.Helper()
	pid, err := strconv.Atoi(producer[strings.LastIndexByte(producer, ' ')+1:])
	if err != nil {
		t.Fatalf("producer %q: %v", producer, err)
	}
	return pid
}

// TestFFmpegIsRestarted checks that a killed ffmpeg is restarted, and that its channel is down
// meanwhile and live afterwards.
func TestFFmpegIsRestarted(t *testing.T) {
	t.Parallel()
	needFFmpeg(t)
	g, all, c := start(t, nil)
	if err := c.SetChannel(t.Context(), gatewayapi.Channel{Name: "news", Number: 7, Source: patternSource, BitRate: 500_000, To: mediaAddr}); err != nil {
		t.Fatal(err)
	}
	live := func() bool { return state(t, g, "news").OnAir == gatewayapi.OnAirLive }
	until(t, "live", live)
	first := processOf(t, state(t, g, "news").Producer)
	if err := syscall.Kill(first, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	until(t, "down", func() bool { return state(t, g, "news").OnAir == gatewayapi.OnAirDown })
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "the reason", func() bool { return strings.Contains(state(t, g, "news").Error, "killed") })
	before := len(all.of(7).to(mediaTo))
	until(t, "live again", live)
	if s := state(t, g, "news"); fault(s) != "" || processOf(t, s.Producer) == first {
		t.Errorf("%+v", s)
	}
	until(t, "more datagrams", func() bool { return len(all.of(7).to(mediaTo)) > before+10 })
	if got := strings.Join(events(g, "news"), " "); !strings.HasPrefix(got, "live down live") {
		t.Errorf("events %q", got)
	}
}

// TestFFmpegError checks that the error of an unreadable source is reported, and that it is
// tried again with growing pauses.
func TestFFmpegError(t *testing.T) {
	t.Parallel()
	needFFmpeg(t)
	g, _, c := start(t, nil)
	name := filepath.Join(t.TempDir(), "film.mp4")
	if err := os.WriteFile(name, []byte("no film"), 0o600); err != nil {
		t.Fatal(err)
	}
	for number, source := range map[uint16]string{1: "file:" + name, 2: "file:" + name + ".gone", 3: "rtsp://127.0.0.1:1/x"} {
		if err := c.SetChannel(t.Context(), gatewayapi.Channel{Name: "c" + strconv.Itoa(int(number)), Number: number, Source: gatewayapi.StoredSource(source), BitRate: 500_000, To: mediaAddr}); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"c1": "Invalid data found", "c2": "No such file", "c3": "refused"} {
		until(t, name+" says "+want, func() bool { return strings.Contains(state(t, g, name).Error, want) })
	}
	until(t, "another try", func() bool { return g.totals.failures.Load() >= 6 })
}

// TestWithoutFFmpeg checks that gateway and channel report that ffmpeg is missing.
func TestWithoutFFmpeg(t *testing.T) {
	g, _, c := start(t, func(cfg *Config) { cfg.FFmpeg = "/nowhere/ffmpeg" })
	st, err := c.Status(t.Context())
	if err != nil || len(st.Warnings) != 1 || !strings.Contains(st.Warnings[0], "install ffmpeg") {
		t.Errorf("%+v, %v", st, err)
	}
	if err := c.SetChannel(t.Context(), gatewayapi.Channel{Name: "news", Number: 7, Source: "test:", BitRate: 500_000, To: mediaAddr}); err != nil {
		t.Fatal(err)
	}
	until(t, "the reason", func() bool { return strings.Contains(state(t, g, "news").Error, "no such file") })
}

// film makes a file of two seconds.
func film(t *testing.T, args ...string) string {
	t.Helper()
	args = append([]string{"-f", "lavfi", "-i", "testsrc2=size=320x180:rate=20", "-f", "lavfi", "-i", "sine"}, append(args, "-t", "2")...)
	return makeFilm(t, "film.mp4", args...)
}

// makeFilm has ffmpeg make a file with a name.
func makeFilm(t *testing.T, name string, args ...string) string {
	t.Helper()
	name = filepath.Join(t.TempDir(), name)
	args = append(append([]string{"-v", "error"}, args...), name)
	if out, err := exec.CommandContext(t.Context(), "ffmpeg", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return name
}

// TestFiles checks that a file is played in a loop, that its video is copied if it is in the
// house format already, and that it need not have sound.
func TestFiles(t *testing.T) {
	t.Parallel()
	needFFmpeg(t)
	small := inputPicture{width: 320, height: 180, aspect: 1, rate: 20}
	for _, x := range []struct {
		name string
		args []string
		rate units.Rate
		want sourceProperties
	}{
		{"house format", []string{"-c:v", "libx264", "-profile:v", "baseline", "-g", "20", "-pix_fmt", "yuv420p", "-b:v", "200k", "-c:a", "aac"}, 1_000_000, sourceProperties{copied: true, picture: small}},
		{"other profile", []string{"-c:v", "libx264", "-profile:v", "high", "-g", "20", "-pix_fmt", "yuv420p", "-b:v", "200k", "-c:a", "aac"}, 1_000_000, sourceProperties{picture: small}},
		{"other codec", []string{"-c:v", "mpeg4", "-b:v", "200k", "-c:a", "aac"}, 1_000_000, sourceProperties{picture: small}},
		{"no sound", []string{"-map", "0:v", "-c:v", "libx264", "-profile:v", "baseline", "-g", "20", "-pix_fmt", "yuv420p", "-b:v", "200k"}, 1_000_000, sourceProperties{copied: true, silent: true, picture: small}},
		{"too many bits", []string{"-c:v", "libx264", "-profile:v", "baseline", "-g", "20", "-pix_fmt", "yuv420p", "-b:v", "200k", "-c:a", "aac"}, 150_000, sourceProperties{picture: small}},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			source := "file:" + film(t, x.args...)
			g, all, c := start(t, nil)
			spec := gatewayapi.Channel{Name: "film", Number: 7, Source: gatewayapi.StoredSource(source), BitRate: x.rate, To: mediaAddr}
			if err := c.SetChannel(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
			until(t, "more than the file has", func() bool { return len(keyFrames(t, all.of(7).to(mediaTo))) > 3 })
			s, err := parseSource(source)
			if err != nil {
				t.Fatal(err)
			}
			f := &ffmpegSource{ffmpeg: "ffmpeg", source: s, ch: g.channel("film")}
			if got := f.probe(t.Context()); got != x.want {
				t.Errorf("%+v, want %+v", got, x.want)
			}
			until(t, "live", func() bool { return state(t, g, "film").OnAir == gatewayapi.OnAirLive })
			if st := state(t, g, "film"); fault(st) != "" {
				t.Errorf("%+v", st)
			}
			for stamp, first := range keyFrames(t, all.of(7).to(mediaTo)) {
				if first != 7 && first != 24 {
					t.Errorf("the key frame at %d begins with a unit of type %d, not with its parameters", stamp, first)
				}
			}
		})
	}
}

// keyFrames returns the type of the unit with which each key frame begins, by timestamp.
func keyFrames(t *testing.T, out []sent) map[uint32]byte {
	t.Helper()
	first := map[uint32]byte{}
	for _, p := range parsed(t, out) {
		if _, again := first[p.Timestamp]; p.KeyFrame() && !again {
			first[p.Timestamp] = p.Payload[0] & 0x1f
		}
	}
	return first
}

// TestStreams checks that producers connect to the gateway by MPEG-TS over UDP, SRT and RTMP.
func TestStreams(t *testing.T) {
	t.Parallel()
	needFFmpeg(t)
	for _, x := range []struct{ name, source, to, format string }{
		{"udp", "udp://127.0.0.1:PORT", "udp://127.0.0.1:PORT?pkt_size=1316", "mpegts"},
		{"srt", "srt://127.0.0.1:PORT", "srt://127.0.0.1:PORT", "mpegts"},
		{"rtmp", "rtmp://127.0.0.1:PORT/live/x", "rtmp://127.0.0.1:PORT/live/x", "flv"},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			port := strconv.Itoa(freePort(t))
			g, _, c := start(t, nil)
			spec := gatewayapi.Channel{Name: "live", Number: 7, Source: gatewayapi.StoredSource(strings.ReplaceAll(x.source, "PORT", port)), BitRate: 1_000_000, To: mediaAddr}
			if err := c.SetChannel(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
			produce(t, x.format, strings.ReplaceAll(x.to, "PORT", port))
			until(t, "live", func() bool { return state(t, g, "live").OnAir == gatewayapi.OnAirLive })
			if s := state(t, g, "live"); fault(s) != "" {
				t.Errorf("%+v", s)
			}
		})
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// produce sends a stream until the test ends or stop is called. It tries again if nobody accepts
// it.
func produce(t *testing.T, format, to string) (stop func()) {
	t.Helper()
	return produceWith(t, "-re -f lavfi -i testsrc2=size=320x180:rate=20 -f lavfi -i sine=sample_rate=44100 "+
		"-c:v libx264 -preset ultrafast -g 20 -pix_fmt yuv420p -b:v 300k -c:a aac -f "+format, to)
}

// produceWith sends a stream that ffmpeg makes with the given arguments.
func produceWith(t *testing.T, args, to string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = exec.CommandContext(ctx, "ffmpeg", append(append([]string{"-v", "error"}, strings.Fields(args)...), to)...).Run()
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}
