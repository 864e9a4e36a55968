package doctor

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// port is the examined state of an interface that carries data.
type port struct {
	name             string
	mtu, queue       int // MTU in bytes; length of the transmit queue in packets
	virtual          bool
	sent, dropped    uint64   // packets since the interface came up
	disciplines      []string // queueing disciplines
	restrictedTables []string // firewall chains that drop packets which no rule accepts
	touchingRules    []string // firewall chains with rules that block packets of this interface
}

// portOf returns the interface that has an address. If no interface has it, the returned port has no
// name.
func portOf(a netip.Addr) (p port, err error) {
	all, err := net.Interfaces()
	if err != nil {
		return p, err
	}
	for _, i := range all {
		addrs, _ := i.Addrs() // addresses that cannot be read count as none
		if slices.ContainsFunc(addrs, func(x net.Addr) bool {
			n, ok := x.(*net.IPNet)
			return ok && n.IP.Equal(a.AsSlice())
		}) {
			return readPort(i.Name)
		}
	}
	return p, nil
}

func readPort(name string) (p port, err error) {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return p, err
	}
	at := l.Attrs()
	p = port{name: name, mtu: at.MTU, queue: at.TxQLen, virtual: l.Type() != "device" || at.Flags&net.FlagLoopback != 0}
	if s := at.Statistics; s != nil {
		p.sent, p.dropped = s.TxPackets, s.TxDropped
	}
	queues, err := netlink.QdiscList(l)
	for _, q := range queues {
		p.disciplines = append(p.disciplines, q.Type())
	}
	return p, err
}

const (
	usualMTU = 1500
	// fewQueued is the queue length in packets below which the queue of a hardware interface is
	// too short for a burst.
	fewQueued = 100
	// If one packet is lost for every manyDropped that are sent, or more, the loss is too high.
	// fewDropped is a number of losses that is usual while an interface comes up.
	manyDropped = 1000
	fewDropped  = 10
)

// limiting lists queueing disciplines that delay or drop packets.
var limiting = []string{"tbf", "htb", "hfsc", "cbq", "netem", "red", "cake"}

// judge returns findings about settings of an interface that slow its traffic down.
func (p port) judge() (out []Finding) {
	warn := func(yes bool, found, advice string) {
		if yes {
			out = append(out, Finding{Check: "data interface", Level: Warn, Found: p.name + ": " + found, Advice: advice})
		}
	}
	warn(p.mtu < usualMTU, fmt.Sprintf("MTU %d", p.mtu), fmt.Sprintf("hosts that send packets of %d bytes lose them where DF is set and nobody answers: ip link set %s mtu %d, if the network carries that (sluice doctor network)", usualMTU, p.name, usualMTU))
	for _, d := range p.disciplines {
		warn(slices.Contains(limiting, d), "queueing discipline "+d+" delays packets", fmt.Sprintf("fine if it is intended; otherwise: tc qdisc del dev %s root", p.name))
	}
	warn(p.dropped > fewDropped && p.dropped >= p.sent/manyDropped, fmt.Sprintf("%d of %d packets were dropped before they were sent", p.dropped, p.sent+p.dropped), "see ethtool -S and tc -s qdisc: a queue that is too short, or a driver that cannot keep up")
	warn(p.queue < fewQueued && !p.virtual, fmt.Sprintf("its queue holds %d packets", p.queue), fmt.Sprintf("bursts are lost: ip link set %s txqueuelen 1000", p.name))
	warn(len(p.restrictedTables) > 0, "the firewall drops packets that no rule accepts: "+strings.Join(p.restrictedTables, ", "), "accept what Sluice needs, see docs/how-to/deploy.md: nft list ruleset")
	warn(len(p.touchingRules) > 0, "the firewall has rules that drop its packets: "+strings.Join(p.touchingRules, ", "), "check whether they concern what Sluice carries: nft list ruleset")
	if len(out) == 0 {
		out = append(out, Finding{Check: "data interface", Level: OK, Found: fmt.Sprintf("%s, MTU %d", p.name, p.mtu)})
	}
	return out
}

// dataInterface checks the interface that carries an agent's data, and settings of the machine that
// affect all packets.
func (s *System) dataInterface(ctx context.Context, a netip.Addr) []Finding {
	p, err := portOf(a)
	if err != nil {
		return []Finding{{Check: "data interface", Level: Info, Found: "cannot be examined: " + err.Error()}}
	}
	if p.name == "" {
		return nil // another finding says that no interface has the address
	}
	p.touchingRules, p.restrictedTables = s.legacyRules(ctx, p.name)
	var wrong []Finding
	if out, err := s.Output(ctx, "nft", "-j", "list", "ruleset"); err == nil { // an error: nft is missing, or needs root
		chains, rules, err := ruleset(out)
		if err != nil {
			wrong = append(wrong, Finding{Check: "nftables", Level: Info, Found: err.Error()})
		}
		p.restrictedTables = append(p.restrictedTables, restricted(chains)...)
		p.touchingRules = append(p.touchingRules, touching(chains, rules, p.name)...)
	}
	return slices.Concat(p.judge(), s.sockets(p.name), wrong)
}

// clock checks whether the machine's clock is synchronized. The validity of certificates depends on
// that, and so do comparisons of times that several machines report.
func clock() Finding {
	f := Finding{Check: "clock", Level: OK, Found: "synchronized"}
	state, err := unix.Adjtimex(new(unix.Timex))
	switch {
	case err != nil:
		f.Level, f.Found = Info, "its state cannot be read: "+err.Error()
	case state == unix.TIME_ERROR:
		f.Level, f.Found, f.Advice = Warn, "not synchronized", "run chrony or systemd-timesyncd: the validity of certificates depends on it, and so does the comparison of events of several machines"
	}
	return f
}
