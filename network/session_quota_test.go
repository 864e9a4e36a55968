package network_test

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/openflow"
)

// greet opens a connection and performs a switch's part of the handshake. It reads nothing after
// that.
func greet(t *testing.T, n *network.Network, d openflow.DatapathID) net.Conn {
	t.Helper()
	conn := dial(t, n)
	hello, _ := openflow.NewHello().AppendTo(nil, 1)
	if _, err := conn.Write(hello); err != nil {
		t.Fatal(err)
	}
	r := openflow.NewReader(conn)
	for {
		m, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if openflow.MsgType(m[1]) != openflow.TypeFeaturesRequest {
			continue
		}
		b, err := (&openflow.FeaturesReply{DatapathID: d, Tables: 1}).AppendTo(nil, openflow.XID(m))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(b); err != nil {
			t.Fatal(err)
		}
		return conn
	}
}

// peak samples the memory in use until stop is called, which returns the maximum.
func peak() (stop func() int64) {
	var most atomic.Int64
	look := func() {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		most.Store(max(most.Load(), int64(m.HeapAlloc)))
	}
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			look()
			select {
			case <-over:
				return
			default:
				runtime.Gosched()
			}
		}
	}()
	return func() int64 { close(over); <-done; return most.Load() }
}

// TestWhoDoesNotReadIsNotReadFrom checks that switches which send echo requests of 64 kB each, and
// do not read the answers, are not read from either. Their output stays small, and then their
// sessions end.
func TestWhoDoesNotReadIsNotReadFrom(t *testing.T) {
	const switches, most = 16, 32 << 20
	n, _ := networktest.Start(t, network.Config{EchoInterval: 500 * time.Millisecond, EchoTimeout: 3 * time.Second})
	stop := networktest.Connect(t, n, fake.NewSwitch(fake.Options{DPID: 1000, Ports: 2}), 1000)
	defer stop()
	request, err := (&openflow.EchoRequest{Data: make([]byte, 65000)}).AppendTo(nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	stopPeak := peak()
	var wg sync.WaitGroup
	for d := range switches {
		conn := greet(t, n, openflow.DatapathID(d+1))
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		wg.Go(func() {
			for {
				if _, err := conn.Write(request); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error("a switch that reads nothing for a minute is not ended")
					return
				} else if err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	if grown := stopPeak() - int64(before.HeapAlloc); grown > most {
		t.Errorf("%d switches that do not read take %d MiB, want at most %d", switches, grown>>20, most>>20)
	}
	if _, is := n.Switch(1000); !is {
		t.Error("a switch that does no harm has lost its session")
	}
}

// flowsWithoutEnd sends parts of a reply to a request for rules, each of which announces a further
// part, until the connection ends.
func flowsWithoutEnd(conn net.Conn, xid uint32) {
	var flows openflow.FlowStatsReply
	for range 400 {
		many := make([]openflow.Action, 8)
		for i := range many {
			many[i] = openflow.PopVLAN()
		}
		flows = append(flows, openflow.FlowStats{Cookie: 0x51 << 56, Instructions: []openflow.Instruction{openflow.ApplyActions(many...)}})
	}
	part, err := (&openflow.MultipartReply{More: true, Body: &flows}).AppendTo(nil, xid)
	for err == nil {
		_, err = conn.Write(part)
	}
}

// TestRepliesOfAllSwitchesAreBounded checks that endless replies of many switches together stay
// within the limit of memory, and that a switch with a small reply still gets the memory for it.
func TestRepliesOfAllSwitchesAreBounded(t *testing.T) {
	const switches, limit, most = 24, 16 << 20, 96 << 20 // for the test's own buffers, and what is not collected yet
	n, _ := networktest.Start(t, network.Config{Memory: limit, EchoInterval: time.Minute})
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	stopPeak := peak()
	ended := make(chan struct{}, switches)
	for d := range switches {
		conn := greet(t, n, openflow.DatapathID(d+1))
		go func() {
			defer func() { ended <- struct{}{} }()
			answerUntilFlows(conn)
		}()
	}
	networktest.Connect(t, n, fake.NewSwitch(fake.Options{DPID: 1000, Ports: 2}), 1000)
	for range switches {
		<-ended
	}
	if grown := stopPeak() - int64(before.HeapAlloc); grown > most {
		t.Errorf("replies of %d switches take %d MiB, want at most %d", switches, grown>>20, most>>20)
	}
}

// answerUntilFlows answers as a small switch does, until it is asked for its rules.
func answerUntilFlows(conn net.Conn) {
	r := openflow.NewReader(conn)
	for {
		m, err := r.Next()
		if err != nil {
			return
		}
		xid := openflow.XID(m)
		_, got, err := openflow.Decode(m)
		if err != nil {
			return
		}
		var answer openflow.Message
		switch q := got.(type) {
		case *openflow.EchoRequest:
			answer = &openflow.EchoReply{Data: q.Data}
		case *openflow.BarrierRequest:
			answer = &openflow.BarrierReply{}
		case *openflow.MultipartRequest:
			switch q.Body.(type) {
			case *openflow.FlowStatsRequest:
				go func() { _, _ = io.Copy(io.Discard, conn) }()
				flowsWithoutEnd(conn, xid)
				return
			case *openflow.PortDescRequest:
				answer = &openflow.MultipartReply{Body: &openflow.PortDescReply{{Number: 1}}}
			default:
				answer = &openflow.Error{Code: openflow.BadRequestMultipart}
			}
		case *openflow.BundleControl:
			answer = &openflow.Error{Code: openflow.BadRequestType}
		default:
			continue
		}
		b, err := answer.AppendTo(nil, xid)
		if err != nil {
			return
		}
		if _, err := conn.Write(b); err != nil {
			return
		}
	}
}
