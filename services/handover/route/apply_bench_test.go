package route

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// taker is a switch that accepts all messages and stores nothing, so that only the controller is
// measured.
func taker(conn net.Conn, dpid openflow.DatapathID) error {
	send := func(m openflow.Message, xid uint32) error {
		b, err := m.AppendTo(nil, xid)
		if err == nil {
			_, err = conn.Write(b)
		}
		return err
	}
	if err := send(openflow.NewHello(), 0); err != nil {
		return err
	}
	for r := openflow.NewReader(conn); ; {
		raw, err := r.Next()
		if err != nil {
			return err
		}
		xid := openflow.XID(raw)
		switch openflow.MsgType(raw[1]) {
		case openflow.TypeFeaturesRequest:
			err = send(&openflow.FeaturesReply{DatapathID: dpid, Tables: 1}, xid)
		case openflow.TypeEchoRequest:
			err = send(&openflow.EchoReply{}, xid)
		case openflow.TypeBarrierRequest:
			err = send(&openflow.BarrierReply{}, xid)
		case openflow.TypeExperimenter: // bundles
			err = send(&openflow.Error{Code: openflow.BadRequestExperimenter}, xid)
		case openflow.TypeMultipartRequest:
			var h openflow.Header
			var m openflow.Message
			if h, m, err = openflow.Decode(append([]byte(nil), raw...)); err == nil {
				err = answer(send, h.XID, m.(*openflow.MultipartRequest))
			}
		}
		if err != nil {
			return err
		}
	}
}

// answer answers the messages of a handshake; all others are refused.
func answer(send func(openflow.Message, uint32) error, xid uint32, m *openflow.MultipartRequest) error {
	var body openflow.MultipartBody
	switch m.Body.(type) {
	case *openflow.PortDescRequest:
		body = &openflow.PortDescReply{}
	case *openflow.FlowStatsRequest:
		body = &openflow.FlowStatsReply{}
	case *openflow.PortStatsRequest:
		body = &openflow.PortStatsReply{}
	default:
		return send(&openflow.Error{Code: openflow.BadRequestMultipart}, xid)
	}
	return send(&openflow.MultipartReply{Body: body}, xid)
}

// BenchmarkMigrationAmongMany moves one device back and forth among many on 50 switches: plan,
// waves, ledger, and the confirmation of the switches over loopback connections. The number of
// devices must not matter.
func BenchmarkMigrationAmongMany(b *testing.B) {
	top := campus(7, 6)
	for _, devices := range []int{1, 1000} {
		b.Run(fmt.Sprintf("devices=%d", devices), func(b *testing.B) {
			o := serving(b, top)
			n := len(top.Switches)
			place := func(i int) Place { return Place{At: ref(n-i%42, 9), MAC: mac3} }
			w := want()
			var old Plan
			for i := range devices {
				w.IP = netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
				w.Places = []Place{place(i)}
				p, err := NewPlan(top, w)
				if err != nil {
					b.Fatal(err)
				}
				if err := o.Apply(b.Context(), w.IP.String(), p.Program, network.ApplyOptions{}); err != nil {
					b.Fatal(err)
				}
				old = p
			}
			key := w.IP.String()
			var written int
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				w.Places = []Place{place(devices + i)}
				now, err := NewPlan(top, w)
				if err != nil {
					b.Fatal(err)
				}
				var report network.ApplyReport
				opts := network.ApplyOptions{Waves: Waves(old, now), Report: &report}
				if err := o.Apply(b.Context(), key, now.Program, opts); err != nil {
					b.Fatal(err)
				}
				added, modified, deleted := report.Total()
				written += added + modified + deleted
				old = now
			}
			b.ReportMetric(float64(written)/float64(b.N), "rules/op")
		})
	}
}

// serving runs a network with all switches of a topology connected.
func serving(b *testing.B, top *network.Topology) *network.Owner {
	b.Helper()
	n, err := network.New(network.Config{Listen: []string{"127.0.0.1:0"}, DisableForwarding: true})
	if err != nil {
		b.Fatal(err)
	}
	o, err := n.Owner("handover", network.OwnerOptions{})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	for _, d := range top.Switches {
		conn, err := net.Dial("tcp", n.Addr()[0].String())
		if err != nil {
			b.Fatal(err)
		}
		left := make(chan struct{})
		go func() {
			defer close(left)
			_ = taker(conn, d) // it ends with the network
		}()
		b.Cleanup(func() {
			_ = conn.Close()
			<-left
		})
	}
	deadline := time.Now().Add(20 * time.Second)
	for tick := time.NewTicker(10 * time.Millisecond); len(n.Switches()) < len(top.Switches); <-tick.C {
		if time.Now().After(deadline) {
			b.Fatalf("%d switches are up", len(n.Switches()))
		}
	}
	return o
}
