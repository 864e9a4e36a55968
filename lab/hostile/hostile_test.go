package hostile

import (
	"context"
	"net"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/openflow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestKindsComeAgainAndEnd checks that each kind of switch connects again when it is cut off, and
// that it closes all its connections when ctx ends.
func TestKindsComeAgainAndEnd(t *testing.T) {
	for _, k := range Kinds() {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				k.Run(ctx, Target{DPID: 1, Dial: func(ctx context.Context) (net.Conn, error) {
					var d net.Dialer
					return d.DialContext(ctx, "tcp", l.Addr().String())
				}})
			}()
			for range 3 {
				conn, err := l.Accept()
				if err != nil {
					t.Fatal(err)
				}
				_ = conn.Close()
			}
			cancel()
			<-done
		})
	}
}

// TestFloodsAreMessages checks that all floods but garbage consist of valid OpenFlow messages.
func TestFloodsAreMessages(t *testing.T) {
	target := Target{Victims: []Host{host(7)}}
	for name, next := range map[string]func([]byte, uint64, Target) []byte{"hosts": newHosts, "moves": claims, "packets": dialogue} {
		for n := range uint64(20) {
			b := next(nil, n, target)
			_, m, err := openflow.Decode(b)
			in, ok := m.(*openflow.PacketIn)
			if err != nil || !ok || in.InPort < 1 || in.InPort > floodPorts {
				t.Errorf("%s: message %d is %v, %v", name, n, m, err)
			}
		}
	}
	if b := garbage(nil, 0, target); len(b) != int(b[2])<<8|int(b[3]) {
		t.Errorf("garbage of %d bytes says that it has %d", len(b), int(b[2])<<8|int(b[3]))
	}
}
