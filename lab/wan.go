package lab

import (
	"time"

	"github.com/sluice-net/sluice/lab/delayline"
)

// WANOptions are the variables of the WAN topology. The zero value is the
// demo's: 300 Mbit/s, 150 ms round trip, 0.05 % loss.
type WANOptions struct {
	Rate  float64       // bit/s
	RTT   time.Duration // of the long link, both ways together
	Loss  float64       // each way, 0 to 1; negative for none
	Queue int64         // bytes; 0 is one bandwidth-delay product
	MTU   int
}

// WAN is two sites with a switch, a host and an agent each, and one long link
// between the switches: client-s1=s2-server, x on s1, y on s2.
func WAN(name string, o WANOptions) Topology {
	if o.Rate == 0 {
		o.Rate = 300e6
	}
	if o.RTT == 0 {
		o.RTT = 150 * time.Millisecond
	}
	if o.Loss == 0 {
		o.Loss = 0.0005
	}
	o.Loss = max(o.Loss, 0)
	t := Topology{
		Name:     name,
		Switches: []Switch{{Name: "s1"}, {Name: "s2"}},
		Hosts: []Host{
			{Name: "client", Congestion: ordinaryTCP},
			{Name: "server", Congestion: ordinaryTCP},
			{Name: "x", Agent: true},
			{Name: "y", Agent: true},
		},
		Links: []Link{
			Both("client", "s1", delayline.Params{}),
			Both("x", "s1", delayline.Params{}),
			Both("s1", "s2", delayline.Params{Rate: o.Rate, Delay: o.RTT / 2, Loss: o.Loss, Queue: o.Queue}),
			Both("server", "s2", delayline.Params{}),
			Both("y", "s2", delayline.Params{}),
		},
	}
	t.Links[2].Name = "wan"
	for i := range t.Links {
		t.Links[i].MTU = o.MTU
	}
	return t
}

// ordinaryTCP is the congestion control of an unmodified Linux host, whatever
// this kernel's own default is.
const ordinaryTCP = "cubic"
