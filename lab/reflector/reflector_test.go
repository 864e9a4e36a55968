package reflector

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/openflow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestServe checks that packets of every switch leave by the one port, in order, also after the
// switch of the port has connected again.
func TestServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l, Port{Switch: 2, Number: 7}) }()

	left := make(chan []byte, 64)
	var all []*fake.Switch
	var wg sync.WaitGroup
	for d := range openflow.DatapathID(2) {
		s := fake.NewSwitch(fake.Options{DPID: d + 1, Ports: 8, OnOutput: func(port uint32, frame []byte) {
			if d+1 != 2 || port != 7 {
				t.Errorf("a packet leaves switch %d by port %d, want switch 2 and port 7", d+1, port)
			}
			select {
			case left <- bytes.Clone(frame):
			default: // more than the test waits for
			}
		}})
		miss := openflow.NewFlowMod(openflow.FlowAdd, 0, 0, openflow.Match{}, openflow.ApplyActions(openflow.OutputController(openflow.MaxLenNoBuffer)))
		if err := s.Change(miss); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := s.Dial(ctx, l.Addr()); err != nil && ctx.Err() == nil {
					t.Errorf("switch %d: %v", d+1, err)
					return
				}
			}
		})
	}
	// pass sends numbered packets by both switches until some have left, as those that arrive
	// before both switches are connected are lost.
	next := uint32(0)
	pass := func() {
		first, last, came := next+1, []uint32{0, 0}, 0
		for came < 20 {
			next++
			for i, s := range all {
				// An error means that the switch is not connected, and connects again.
				_, _ = s.Receive(1, binary.BigEndian.AppendUint32(append(make([]byte, 12), 0x27, 0xc0, byte(i)), next))
			}
			for more := true; more; {
				select {
				case f := <-left:
					from, n := f[14], binary.BigEndian.Uint32(f[15:])
					if n < first {
						continue
					}
					if came++; n <= last[from] {
						t.Errorf("packet %d of switch %d has left after %d", n, from+1, last[from])
					}
					last[from] = n
				default:
					more = false
				}
			}
		}
	}
	pass()
	all[1].Close()
	pass()
	cancel()
	wg.Wait()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
