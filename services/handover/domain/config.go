package domain

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/network"
)

// Neighbour is another domain with which this one has an agreement.
type Neighbour struct {
	// Name is the neighbour's name here and in the certificate that we issued to it. It must be the
	// name that the neighbour uses itself.
	Name string
	// URL is the address of the API of the neighbour's controller, like https://192.0.2.1:8443.
	URL string
	// TLS presents the certificate that the neighbour issued to us, and trusts its authority.
	TLS *tls.Config
	// Prefixes contain the addresses of the neighbour's own devices. Transit contains the addresses
	// of other domains' devices that the neighbour may pass on to us.
	Prefixes, Transit []netip.Prefix
	// Peering is our border port that leads to the neighbour.
	Peering network.PortRef
	// Unsigned reports whether the neighbour may claim devices without a key, by their hardware
	// address alone. A device with a key must always prove where it is.
	Unsigned bool
	// MaxVisitors bounds the neighbour's devices that may be here at once; zero means 10000.
	MaxVisitors int
}

// containsAddr reports whether one of the prefixes contains the address.
func containsAddr(prefixes []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// Timing bounds every wait of the protocol.
type Timing struct {
	// Answer bounds one question to a neighbour, and so how long neighbours that are down can
	// delay the DHCP of an unknown device. Default 500 ms.
	Answer time.Duration
	// Request bounds a request that makes the neighbour change its rules. Default 3 s.
	Request time.Duration
	// Move bounds a move from its notice to its completion. Default 60 s.
	Move time.Duration
	// Window bounds the age of a message, and the difference between clocks. Default 30 s.
	Window time.Duration
	// Forget is how long neighbours are not asked again for a hardware address that none of them
	// knew. Default 5 s.
	Forget time.Duration
	// Hello is the interval of the hello messages to a neighbour. They show whether the neighbour can
	// be reached, and keep the connection open. Default 10 s.
	Hello time.Duration
	// Retry is the first pause between attempts to deliver the outbox to a neighbour, and RetryMax
	// the longest. Defaults 100 ms and 10 s.
	Retry, RetryMax time.Duration
}

// withDefaults returns the timing with defaults filled in.
func (t Timing) withDefaults() Timing {
	t.Answer = cmp.Or(t.Answer, 500*time.Millisecond)
	t.Request = cmp.Or(t.Request, 3*time.Second)
	t.Move = cmp.Or(t.Move, time.Minute)
	t.Window = cmp.Or(t.Window, 30*time.Second)
	t.Forget = cmp.Or(t.Forget, 5*time.Second)
	t.Hello = cmp.Or(t.Hello, 10*time.Second)
	t.Retry = cmp.Or(t.Retry, 100*time.Millisecond)
	t.RetryMax = cmp.Or(t.RetryMax, 10*time.Second)
	return t
}

const defaultMaxVisitors = 10000

// checkNeighbours checks the settings of neighbours that the configuration's own checks leave out.
func checkNeighbours(self string, list []Neighbour) error {
	for _, n := range list {
		u, err := url.Parse(n.URL)
		switch {
		case !nameForm.MatchString(n.Name):
			return fmt.Errorf("neighbour %q: name: up to 63 letters, digits, dots, dashes and underscores", n.Name)
		case n.Name == self:
			return fmt.Errorf("neighbour %q: the name is that of this domain", n.Name)
		case err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "":
			return fmt.Errorf("neighbour %q: url %q: a URL like https://192.0.2.1:8443", n.Name, n.URL)
		}
	}
	return nil
}
