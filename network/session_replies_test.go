package network

import (
	"context"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// heap returns the memory in use after a garbage collection.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// silent returns a session with a switch that reads and sends nothing.
func silent(t *testing.T, n *Network) *Switch {
	t.Helper()
	ours, theirs := net.Pipe()
	s := newSwitch(n, ours)
	ended := make(chan struct{})
	go func() { s.ch.out.run(s.ch.done); close(ended) }()
	go func() {
		b := make([]byte, 1024)
		for {
			if _, err := theirs.Read(b); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(s.ch.done)
		_ = ours.Close()
		_ = theirs.Close()
		<-ended
	})
	return s
}

// TestRepliesAreBoundedByWhatTheyTakeInMemory checks that replies are bounded by the memory they
// take and not by their size on the wire: a part without content and an instruction of eight bytes
// take far more. Each switch always has a share of its own.
func TestRepliesAreBoundedByWhatTheyTakeInMemory(t *testing.T) {
	const all = 8 << 20
	var flows openflow.FlowStatsReply
	for range 400 {
		many := make([]openflow.Action, 8)
		for i := range many {
			many[i] = openflow.PopVLAN()
		}
		flows = append(flows, openflow.FlowStats{Instructions: []openflow.Instruction{openflow.ApplyActions(many...)}})
	}
	for name, body := range map[string]openflow.MultipartBody{"parts of one port": &openflow.PortStatsReply{{Port: 1}}, "flows with many small actions": &flows} {
		t.Run(name, func(t *testing.T) {
			n, err := New(Config{Memory: all})
			if err != nil {
				t.Fatal(err)
			}
			part, err := (&openflow.MultipartReply{More: true, Body: body}).AppendTo(nil, 1)
			if err != nil {
				t.Fatal(err)
			}
			before := heap()
			s := silent(t, n)
			r := &request{account: s.ch.account, done: make(chan struct{})}
			s.ch.requests[1] = r
			for fed := 0; s.ch.requests[1] != nil; fed += len(part) {
				s.ch.reply(part, time.Now())
				if fed > 64<<20 {
					t.Fatalf("a reply of %d bytes on the wire was not refused; the heap has grown by %d", fed, heap()-before)
				}
			}
			if r.err == nil {
				t.Fatal("a reply without end has ended well")
			}
			if grown := heap() - before; grown > all+all/4 {
				t.Errorf("replies take %d bytes, %d should be the most", grown, all)
			}
			runtime.KeepAlive(r)
			last := silent(t, n)
			r = &request{account: last.ch.account, done: make(chan struct{})}
			last.ch.requests[1] = r
			whole, _ := (&openflow.MultipartReply{Body: &openflow.PortDescReply{{Number: 1}}}).AppendTo(nil, 1)
			last.ch.reply(whole, time.Now())
			if <-r.done; r.err != nil {
				t.Errorf("a switch that needs little was refused: %v", r.err)
			}
		})
	}
}

// TestEmptyPartsEndAReply checks that empty parts take no memory, and that too many of them end
// the reply.
func TestEmptyPartsEndAReply(t *testing.T) {
	n, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := silent(t, n)
	r := &request{account: s.ch.account, done: make(chan struct{})}
	s.ch.requests[1] = r
	part, err := (&openflow.MultipartReply{More: true, Body: &openflow.PortStatsReply{}}).AppendTo(nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	for range maxEmptyParts {
		s.ch.reply(part, time.Now())
	}
	if s.ch.requests[1] == nil || r.bytes != 0 || len(r.parts) != 0 {
		t.Fatalf("after %d parts: %d bytes, %v", maxEmptyParts, r.bytes, r.err)
	}
	s.ch.reply(part, time.Now())
	if <-r.done; r.err == nil {
		t.Error("a reply without end has ended well")
	}
}

// TestRepliesGiveBackWhatTheyTook checks that a request releases its memory when it ends, in
// whatever way it ends.
func TestRepliesGiveBackWhatTheyTook(t *testing.T) {
	n, err := New(Config{RequestTimeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	s := silent(t, n)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.ch.call(ctx, &openflow.MultipartRequest{Body: &openflow.PortDescRequest{}})
		ended <- err
	}()
	big := openflow.PortDescReply(make([]openflow.Port, 1000))
	part, err := (&openflow.MultipartReply{More: true, Body: &big}).AppendTo(nil, s.ch.xid.Load()+1)
	if err != nil {
		t.Fatal(err)
	}
	for feed := true; feed; {
		s.ch.reply(part, time.Now())
		select {
		case err := <-ended:
			feed = false
			if err == nil {
				t.Error("a request ended well that was not answered")
			}
		default:
		}
	}
	cancel()
	s.ch.reply(part, time.Now())
	if taken, beyond := n.quota.taken(); taken != int64(s.ch.out.charged) || beyond != 0 {
		t.Errorf("%d bytes are still taken, %d of those for output, %d beyond the shares", taken, s.ch.out.charged, beyond)
	}
}
