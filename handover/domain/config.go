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

// Neighbour is another domain that we have an agreement with.
type Neighbour struct {
	// Name is how it is called here and in the certificate we issued to it; it
	// must be the name it calls itself.
	Name string
	// URL is its controller's API, like https://192.0.2.1:8443.
	URL string
	// TLS shows the certificate that it issued to us and trusts its authority.
	TLS *tls.Config
	// Prefixes hold the addresses of its own devices. Transit holds those of
	// other domains' devices that it may pass on to us.
	Prefixes, Transit []netip.Prefix
	// Peering is our border port that leads to it.
	Peering network.PortRef
	// Unsigned lets it claim devices without a key, by their hardware address
	// alone. A device with a key must always prove that it is there.
	Unsigned bool
	// MaxVisitors bounds the devices it may have here at once; zero means 10000.
	MaxVisitors int
}

func holds(prefixes []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// Timing bounds every wait of the protocol.
type Timing struct {
	// Answer bounds one question to a neighbour, and so how long the DHCP of an
	// unknown device is held up by neighbours that are down. Default 500 ms.
	Answer time.Duration
	// Request bounds a request that makes the neighbour change its rules. Default 3 s.
	Request time.Duration
	// Move bounds a move from its notice to its completion. Default 60 s.
	Move time.Duration
	// Window is how old a message may be, and how far clocks may differ. Default 30 s.
	Window time.Duration
	// Forget is for how long a hardware address that nobody knew is not asked
	// for again. Default 5 s.
	Forget time.Duration
	// Hello is how often a neighbour is spoken to although there is nothing to
	// say: it shows that it is there, and keeps the connection warm. Default 10 s.
	Hello time.Duration
	// Retry is the first and RetryMax the longest pause between attempts to
	// deliver what is in the outbox to a neighbour. Defaults 100 ms and 10 s.
	Retry, RetryMax time.Duration
}

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

// checkNeighbours refuses what the configuration does not look at.
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
