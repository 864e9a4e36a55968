package ingress

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bluenviron/gortmplib/pkg/amf0"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
	"github.com/sluice-net/sluice/services/cinema/media"
)

// listening starts a gateway with the channel "live", whose source has PORT in the place of its
// port, and returns that port.
func listening(t *testing.T, source string) (*Gateway, *sinks, string) {
	t.Helper()
	port := strconv.Itoa(freePort(t))
	g, all, c := start(t, nil)
	spec := gatewayapi.Channel{Name: "live", Number: 7, Source: gatewayapi.StoredSource(strings.ReplaceAll(source, "PORT", port)), BitRate: 1_000_000, To: mediaAddr}
	if err := c.SetChannel(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	return g, all, port
}

func isLive(t *testing.T, g *Gateway) func() bool {
	return func() bool { return state(t, g, "live").OnAir == gatewayapi.OnAirLive }
}

// dial connects to a port of the loopback interface as soon as somebody listens there.
func dial(t *testing.T, port string) (conn net.Conn) {
	t.Helper()
	until(t, "somebody to listen at "+port, func() (ok bool) {
		var err error
		conn, err = net.Dial("tcp", "127.0.0.1:"+port)
		return err == nil
	})
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Stages of a client of RTMP, each with those before it.
const (
	stageNothing = iota
	stageHalf    // of the handshake
	stageHandshake
	stageConnected
	stagePublished
)

// rtmpClient connects to a port by RTMP, goes as far as a stage, and is silent then.
func rtmpClient(t *testing.T, port, app, key string, stage int) net.Conn {
	t.Helper()
	conn := dial(t, port)
	send := func(b []byte) {
		if _, err := conn.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if stage >= stageHalf {
		send(append([]byte{3}, make([]byte, 700)...))
	}
	if stage >= stageHandshake {
		send(make([]byte, 836+1536))
		if _, err := io.ReadFull(conn, make([]byte, 1+2*1536)); err != nil {
			t.Fatal(err)
		}
	}
	command := func(args ...any) {
		body, err := amf0.Data(args).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		b := []byte{3, 0, 0, 0, 0, byte(len(body) >> 8), byte(len(body)), 20, 0, 0, 0, 0}
		for part := range slices.Chunk(body, 128) {
			b = append(append(b, part...), 0xc3)
		}
		send(b[:len(b)-1])
	}
	if stage >= stageConnected {
		command("connect", float64(1), amf0.Object{{Key: "app", Value: app}})
		command("createStream", float64(2), nil)
	}
	if stage >= stagePublished {
		command("publish", float64(3), nil, key, "live")
	}
	return conn
}

// TestSilentClients checks that clients by RTMP that fall silent, at whatever stage of their
// connection, keep nobody from publishing, and that all of them are disconnected.
func TestSilentClients(t *testing.T) {
	live.Test(t)
	t.Parallel()
	needFFmpeg(t)
	g, _, port := listening(t, "rtmp://127.0.0.1:PORT/live/x")
	var silent []net.Conn
	for stage := stageNothing; stage < stagePublished; stage++ {
		silent = append(silent, rtmpClient(t, port, "live", "x", stage))
	}
	produce(t, "flv", "rtmp://127.0.0.1:"+port+"/live/x")
	until(t, "live", isLive(t, g))
	for stage, conn := range silent {
		if _, err := io.Copy(io.Discard, conn); err != nil {
			t.Errorf("stage %d: %v", stage, err)
		}
	}
}

// TestSilentProducer checks that a producer by RTMP that has the right key and sends nothing
// gives way to another one.
func TestSilentProducer(t *testing.T) {
	t.Parallel()
	needFFmpeg(t)
	g, _, port := listening(t, "rtmp://127.0.0.1:PORT/live/x")
	conn := rtmpClient(t, port, "live", "x", stagePublished)
	until(t, "the producer", func() bool { return state(t, g, "live").Producer == conn.LocalAddr().String() })
	produce(t, "flv", "rtmp://127.0.0.1:"+port+"/live/x")
	until(t, "live", isLive(t, g))
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Error(err)
	}
}

// TestWrongKeys checks that a producer with another stream key, stream ID or passphrase than the
// source's is refused and told of, and that one with the right one is not.
func TestWrongKeys(t *testing.T) {
	t.Parallel()
	needFFmpeg(t)
	for _, x := range []struct{ name, source, wrong, right, format, says string }{
		{"rtmp", "rtmp://127.0.0.1:PORT/live/x", "rtmp://127.0.0.1:PORT/live/wrong", "rtmp://127.0.0.1:PORT/live/x", "flv", errWrongKey.Error()},
		{"rtmp application", "rtmp://127.0.0.1:PORT/live/x", "rtmp://127.0.0.1:PORT/other/x", "rtmp://127.0.0.1:PORT/live/x?a=b", "flv", errWrongKey.Error()},
		{"srt", "srt://127.0.0.1:PORT?streamid=right", "srt://127.0.0.1:PORT?streamid=wrong", "srt://127.0.0.1:PORT?streamid=right", "mpegts", errWrongKey.Error()},
		{"srt without", "srt://127.0.0.1:PORT?streamid=right", "srt://127.0.0.1:PORT", "srt://127.0.0.1:PORT?streamid=right", "mpegts", errWrongKey.Error()},
		{"passphrase", "srt://127.0.0.1:PORT?passphrase=0123456789", "srt://127.0.0.1:PORT?passphrase=9876543210", "srt://127.0.0.1:PORT?passphrase=0123456789", "mpegts", errUnsecure.Error()},
		{"no passphrase", "srt://127.0.0.1:PORT?passphrase=0123456789", "srt://127.0.0.1:PORT", "srt://127.0.0.1:PORT?passphrase=0123456789", "mpegts", errUnsecure.Error()},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			g, _, port := listening(t, x.source)
			stop := produce(t, x.format, strings.ReplaceAll(x.wrong, "PORT", port))
			until(t, "a refusal", func() bool { return strings.Contains(state(t, g, "live").Error, x.says) })
			stop()
			if all := events(g, "live"); slices.Contains(all, "live") || !slices.Contains(all, "refused") {
				t.Errorf("events %q", all)
			}
			produce(t, x.format, strings.ReplaceAll(x.right, "PORT", port))
			until(t, "live", isLive(t, g))
		})
	}
}

// TestSecondProducer checks that a second producer is refused while the first one sends, and
// publishes when the first has gone.
func TestSecondProducer(t *testing.T) {
	t.Parallel()
	needFFmpeg(t)
	for _, x := range []struct{ scheme, path, format string }{{"rtmp", "/live/x", "flv"}, {"srt", "", "mpegts"}, {"udp", "", "mpegts"}} {
		t.Run(x.scheme, func(t *testing.T) {
			t.Parallel()
			g, _, port := listening(t, x.scheme+"://127.0.0.1:PORT"+x.path)
			to := fmt.Sprintf("%s://127.0.0.1:%s%s", x.scheme, port, x.path)
			stop := produce(t, x.format, to)
			until(t, "live", isLive(t, g))
			first := state(t, g, "live").Producer
			produce(t, x.format, to)
			until(t, "a refusal", func() bool { return slices.Contains(events(g, "live"), "refused") })
			if now := state(t, g, "live").Producer; now != first {
				t.Errorf("%s instead of %s", now, first)
			}
			stop()
			until(t, "the second one", func() bool {
				s := state(t, g, "live")
				return s.Producer != first && s.Producer != "" && isLive(t, g)()
			})
		})
	}
}

// TestTransportStreamSound checks that a viewer gets all sound of a producer by MPEG-TS, which
// comes in clumps of up to 0.7 s, and does not get less of the picture.
func TestTransportStreamSound(t *testing.T) {
	live.Test(t)
	t.Parallel()
	needFFmpeg(t)
	for _, x := range []struct{ scheme, rate string }{{"srt", "48k"}, {"srt", "96k"}, {"udp", "64k"}} {
		t.Run(x.scheme+" "+x.rate, func(t *testing.T) {
			t.Parallel()
			g, all, port := listening(t, x.scheme+"://127.0.0.1:PORT")
			produceWith(t, "-re -f lavfi -i testsrc2=size=320x180:rate=20 -f lavfi -i sine=sample_rate=44100 "+
				"-c:v libx264 -preset ultrafast -g 20 -pix_fmt yuv420p -b:v 300k -c:a aac -b:a "+x.rate+" -f mpegts", fmt.Sprintf("%s://127.0.0.1:%s?pkt_size=1316", x.scheme, port))
			until(t, "live", isLive(t, g))
			count := func() int {
				return len(slices.DeleteFunc(parsed(t, all.of(7).to(mediaTo)), func(p media.Packet) bool { return !p.Audio() }))
			}
			until(t, "15 s of sound", func() bool { return count() > 15*50 })
			// The viewer comes when the pace has settled.
			line, lost, from := media.NewSplicer(), uint64(0), netip.AddrPortFrom(mediaAddr, 1)
			out := all.of(7).to(mediaTo)
			out = out[len(out)/3:]
			line.Change(from)
			heard := 0
			var before media.Packet
			for i, p := range parsed(t, out) {
				for _, o := range line.Push(from, p, out[i].at) {
					if !o.Audio() {
						continue
					}
					if heard++; heard > 1 && o.Packet.Sequence != before.Sequence+1 {
						t.Errorf("packet %d after %d", o.Packet.Sequence, before.Sequence)
					}
					before = o.Packet
				}
			}
			lost = line.Counts().Lost + line.Counts().Duplicates
			if lost > 0 || heard < 300 {
				t.Errorf("%d packets of sound are heard, %d dropped", heard, lost)
			}
		})
	}
}
