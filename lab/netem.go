package lab

import (
	"fmt"
	"math"
	"sync"

	"github.com/vishvananda/netlink"

	"github.com/sluice-net/sluice/internal/namespace"
	"github.com/sluice-net/sluice/lab/delayline"
)

// These are the values of Options.Shaping.
const (
	ShapingAuto      = "auto" // netem where the kernel has it, else the delay line
	ShapingNetem     = "netem"
	ShapingDelayLine = "delayline"
)

func chooseShaping(requested string) (string, error) {
	switch requested {
	case ShapingDelayLine:
		return requested, nil
	case "", ShapingAuto:
		if netemProbe() == nil {
			return ShapingNetem, nil
		}
		return ShapingDelayLine, nil
	case ShapingNetem:
		if err := netemProbe(); err != nil {
			return "", fmt.Errorf("this kernel has no netem, use the delay line: %w", err)
		}
		return requested, nil
	}
	return "", fmt.Errorf("shaping %q is not one of auto, netem, delayline", requested)
}

// netemProbe reports why the kernel cannot shape links by netem, or nil. It tries a netem and an
// HTB queueing discipline on the loopback interface of a namespace of its own.
var netemProbe = sync.OnceValue(func() error {
	return namespace.Anonymous(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return addQdiscs(lo.Attrs().Index, delayline.Params{Rate: 1e9, Delay: 1e6})
	})
})

// shapeWithNetem gives both ends of a veth pair the properties of the frames that they send.
func shapeWithNetem(w wire) error {
	for _, d := range []struct {
		from   iface
		params delayline.Params
	}{{w.A, w.Link.AtoB}, {w.B, w.Link.BtoA}} {
		err := inNamespace(d.from.Namespace, func() error {
			link, err := netlink.LinkByName(d.from.Name)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetTxQLen(link, shapedQueue); err != nil {
				return err
			}
			return addQdiscs(link.Attrs().Index, d.params)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

var (
	htbRoot   = netlink.MakeHandle(1, 0)
	htbClass  = netlink.MakeHandle(1, 1)
	netemRoot = netlink.MakeHandle(10, 0)
)

// addQdiscs replaces an interface's queueing disciplines: HTB for the rate, and below it netem for
// delay, jitter, loss and the queue.
func addQdiscs(index int, p delayline.Params) error {
	parent := uint32(netlink.HANDLE_ROOT)
	if p.Rate > 0 {
		htb := netlink.NewHtb(netlink.QdiscAttrs{LinkIndex: index, Handle: htbRoot, Parent: parent})
		htb.Defcls = 1
		if err := netlink.QdiscReplace(htb); err != nil {
			return fmt.Errorf("htb: %w", err)
		}
		class := netlink.NewHtbClass(
			netlink.ClassAttrs{LinkIndex: index, Parent: htbRoot, Handle: htbClass},
			netlink.HtbClassAttrs{Rate: uint64(p.Rate), Ceil: uint64(p.Rate)})
		if err := netlink.ClassReplace(class); err != nil {
			return fmt.Errorf("htb class: %w", err)
		}
		parent = htbClass
	}
	netem := netlink.NewNetem(netlink.QdiscAttrs{LinkIndex: index, Handle: netemRoot, Parent: parent}, netemAttrs(p))
	if err := netlink.QdiscReplace(netem); err != nil {
		return fmt.Errorf("netem: %w", err)
	}
	return nil
}

// netemAttrs returns a line's properties in netem's units. netem's limit counts the packets in
// flight as well as those in the queue.
func netemAttrs(p delayline.Params) netlink.NetemQdiscAttrs {
	packets := 100000.0
	if p.Rate > 0 {
		bytes := p.Rate/8*(p.Delay+p.Jitter).Seconds() + float64(p.QueueLimit())
		packets = math.Ceil(bytes / 1514)
	}
	return netlink.NetemQdiscAttrs{
		Latency: uint32(p.Delay.Microseconds()),
		Jitter:  uint32(p.Jitter.Microseconds()),
		Loss:    float32(p.Loss * 100),
		Limit:   uint32(max(packets, 2)),
	}
}
