package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/openflow"
)

// ports holds the ports of one switch.
type ports struct {
	// limit is the maximum number of ports.
	limit int

	mu       sync.Mutex
	byNumber map[uint32]openflow.Port
}

// list returns the ports, ordered by number.
func (p *ports) list() []openflow.Port {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]openflow.Port, 0, len(p.byNumber))
	for _, port := range p.byNumber {
		out = append(out, port)
	}
	slices.SortFunc(out, func(a, b openflow.Port) int { return cmp.Compare(a.Number, b.Number) })
	return out
}

func (p *ports) get(number uint32) (openflow.Port, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	port, ok := p.byNumber[number]
	return port, ok
}

// update records what the switch reports about a port, and returns what it reported before. If
// there is no room for a new port, update ignores it.
func (p *ports) update(port openflow.Port, deleted bool) (old openflow.Port, known, room bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old, known = p.byNumber[port.Number]
	switch {
	case deleted:
		delete(p.byNumber, port.Number)
	case known || len(p.byNumber) < p.limit:
		p.byNumber[port.Number] = port
	default:
		return old, false, false
	}
	return old, known, true
}

// errTooManyPorts is returned for a switch with more ports than the configuration allows.
var errTooManyPorts = errors.New("switch refused")

// read requests the ports from the switch.
func (p *ports) read(ctx context.Context, ch *channel) error {
	all, done, err := ask[openflow.PortDescReply](ctx, ch, &openflow.PortDescRequest{})
	if err != nil {
		return err
	}
	defer done()
	for port := range all {
		if _, _, room := p.update(*port, false); !room {
			return fmt.Errorf("%w: it has more than %d ports; if that is true, raise openflow.max_ports", errTooManyPorts, p.limit)
		}
	}
	return nil
}

// PortRole is the purpose that the operator has configured for a port.
type PortRole uint8

// The roles. A port without one may have any number of hosts, or a link.
const (
	// PortAccess is for a limited number of end hosts, and for no link to a switch.
	PortAccess PortRole = iota + 1
	// PortUplink leads to networks beyond this one, where DHCP servers may be too.
	PortUplink
	// PortTrunk is for many hosts of this network, behind a foreign switch, an access point or a
	// machine with virtual ones; or for a link.
	PortTrunk
)

// manyHosts is the number of hosts that may be behind an uplink or a trunk: as many as behind a
// switch.
const manyHosts = hosts.DefaultMaxPerSwitch

// PortRole returns the role of a port, or zero if it has none.
func (n *Network) PortRole(at PortRef) PortRole { return n.cfg.PortRoles[at] }

// maxHostsBehind returns how many hosts the role of a port allows behind it, or zero for the host
// table's default.
func (c *Config) maxHostsBehind(at PortRef) int {
	switch c.PortRoles[at] {
	case PortAccess:
		return c.AccessHosts
	case PortUplink, PortTrunk:
		return manyHosts
	}
	return 0
}
