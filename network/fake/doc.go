// Package fake provides switches without a network, for tests of the controller
// and of services.
//
// A [FlowTable] takes flow, group and meter changes and answers "what happens to
// this packet". A [Switch] is a FlowTable that speaks OpenFlow 1.3 over a
// net.Conn: it connects to a controller, obeys it, and is told by the test what
// its ports receive.
//
//	sw := fake.NewSwitch(fake.Options{DPID: 1, Ports: 4})
//	go sw.Run(ctx, conn)
//	sw.Receive(1, frame)            // a frame comes in by port 1
//	got := sw.Table().Send(1, fake.PacketOf(frame))
//
// Time is the test's: timeouts are counted by Options.Clock, and entries expire
// when Expire is called. What is faked is the data path; the semantics of the
// flow table (priorities, masks, strict and non-strict commands, cookies, idle
// and hard timeouts, groups, bundles) are those of the specification.
package fake
