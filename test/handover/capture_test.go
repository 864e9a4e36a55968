package handover

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// said is a DHCP message on a host's interface.
type said struct {
	kind dhcpv4.MessageType
	dst  netip.Addr
	m    *dhcpv4.DHCPv4
}

func (s said) String() string {
	return fmt.Sprintf("%v to %v ciaddr %v yiaddr %v requested %v server %v",
		s.kind, s.dst, s.m.ClientIPAddr, s.m.YourIPAddr, s.m.RequestedIPAddress(), s.m.ServerIdentifier())
}

// capture keeps the DHCP messages on a host's interface, in both directions.
type capture struct {
	w   *world
	mu  sync.Mutex
	all []said
}

func (w *world) capture(host string, n int) *capture {
	w.t.Helper()
	c := &capture{w: w}
	w.openRadio(host, n, true).watch(func(f frame) {
		if m := f.dhcp(); m != nil {
			c.mu.Lock()
			c.all = append(c.all, said{m.MessageType(), f.to.Addr(), m})
			c.mu.Unlock()
		}
	})
	return c
}

// len returns how many messages there were.
func (c *capture) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all)
}

// answered waits, from message number n on, for a message that meets the condition, and returns
// the answer to it.
func (c *capture) answered(n int, what string, asked func(said) bool) said {
	c.w.t.Helper()
	var answer said
	ok := c.w.poll(leaseWait, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for i := n; i < len(c.all); i++ {
			if !asked(c.all[i]) {
				continue
			}
			for _, s := range c.all[i+1:] {
				if s.m.TransactionID == c.all[i].m.TransactionID && s.m.OpCode == dhcpv4.OpcodeBootReply {
					answer = s
					return true
				}
			}
		}
		return false
	})
	if !ok {
		c.w.t.Fatalf("no answer to: %s. What was said:\n%s", what, c)
	}
	return answer
}

func (c *capture) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var lines []string
	for _, s := range c.all {
		lines = append(lines, s.String())
	}
	return strings.Join(lines, "\n")
}

// The states in which a client asks, by the contents of the message (RFC 2131).

func discovering(s said) bool { return s.kind == dhcpv4.MessageTypeDiscover }

func request(s said) bool { return s.kind == dhcpv4.MessageTypeRequest }

func selecting(s said) bool {
	return request(s) && s.m.ServerIdentifier() != nil && s.m.RequestedIPAddress() != nil && s.m.ClientIPAddr.IsUnspecified()
}

func rebooting(s said) bool {
	return request(s) && s.m.ServerIdentifier() == nil && s.m.RequestedIPAddress() != nil && s.m.ClientIPAddr.IsUnspecified()
}

func renewing(s said) bool {
	return request(s) && s.m.ServerIdentifier() == nil && s.m.RequestedIPAddress() == nil &&
		!s.m.ClientIPAddr.IsUnspecified() && s.dst != broadcastIP
}

func rebinding(s said) bool {
	return request(s) && s.m.ServerIdentifier() == nil && s.m.RequestedIPAddress() == nil &&
		!s.m.ClientIPAddr.IsUnspecified() && s.dst == broadcastIP
}
