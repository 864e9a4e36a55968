// Package fake provides switches without a network, for tests of the controller and of services.
//
// A [FlowTable] takes flow, group and meter changes, and returns what happens to a packet. A
// [Switch] is a FlowTable that speaks OpenFlow 1.3 over a net.Conn: it connects to a controller
// and obeys it, and the test passes it the frames that its ports receive.
//
//	sw := fake.NewSwitch(fake.Options{DPID: 1, Ports: 4})
//	go sw.Run(ctx, conn)
//	sw.Receive(1, frame)            // a frame arrives at port 1
//	got := sw.Table().Send(1, fake.PacketOf(frame))
//
// The test controls the time: timeouts use Options.Clock, and entries expire when Expire is
// called. Only the data path is fake: the semantics of the flow table (priorities, masks, strict
// and non-strict commands, cookies, idle and hard timeouts, groups, bundles) are those of the
// specification.
package fake
