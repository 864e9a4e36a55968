package replicas

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

const (
	// DefaultK is the default number of domains that keep each name, as in the original release.
	DefaultK = 5
	// MaxDomains is the maximum number of domains.
	MaxDomains = 1024
)

// ErrDomains means that the domains cannot form one name service; errors wrap it.
var ErrDomains = errors.New("invalid domains of a name service")

// Domain is a domain with a name service.
type Domain struct {
	// Name determines which names the domain keeps. It has to be the same in the configuration of
	// all domains.
	Name string
	// Addr is the UDP address of the domain's name service.
	Addr netip.AddrPort
}

// ParseDomain parses a domain written as NAME=ADDRESS:PORT.
func ParseDomain(text string) (Domain, error) {
	name, at, ok := strings.Cut(text, "=")
	addr, err := netip.ParseAddrPort(at)
	if !ok || name == "" || err != nil || !isServerAddr(addr) {
		return Domain{}, fmt.Errorf("domain %q: want a name, an address and a port, like west=192.0.2.1:5001: %w", text, ErrDomains)
	}
	return Domain{name, addr}, nil
}

// isServerAddr reports whether a server can be reached at an address.
func isServerAddr(a netip.AddrPort) bool {
	return a.IsValid() && a.Port() != 0 && !a.Addr().IsUnspecified() && !a.Addr().IsMulticast()
}

// Check checks the domains of a name service, the name of this one, and the number k of domains
// that keep each name. The error wraps ErrDomains.
func Check(all []Domain, self string, k int) error {
	names, addrs := map[string]bool{}, map[netip.AddrPort]bool{}
	for _, d := range all {
		if d.Name == "" || !isServerAddr(d.Addr) {
			return fmt.Errorf("domain %q at %v: want a name, and one address and a port: %w", d.Name, d.Addr, ErrDomains)
		}
		if names[d.Name] || addrs[d.Addr] {
			return fmt.Errorf("domain %s at %v: its name or its address is given twice: %w", d.Name, d.Addr, ErrDomains)
		}
		names[d.Name], addrs[d.Addr] = true, true
	}
	switch {
	case len(all) > MaxDomains:
		return fmt.Errorf("%d domains, %d allowed: %w", len(all), MaxDomains, ErrDomains)
	case !names[self]:
		return fmt.Errorf("the domain %q of this service is not among them: %w", self, ErrDomains)
	case k < 1:
		return fmt.Errorf("names are kept by %d domains, want at least 1: %w", k, ErrDomains)
	}
	return nil
}

// seed returns the number from which a domain's scores are computed.
func seed(domain string) uint64 {
	sum := sha256.Sum256([]byte(domain))
	return binary.BigEndian.Uint64(sum[:])
}

// score returns the score of a name at a domain: the domains with the highest scores keep it. A
// domain that is added or removed therefore only takes or leaves its own names (rendezvous hashing,
// Thaler and Ravishankar 1998). Names are hashes already; the bits are mixed as in SplitMix64.
func score(seed uint64, name frame.GUID) uint64 {
	x := seed ^ binary.BigEndian.Uint64(name[:])
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Placement computes which domains keep a name. Its methods may be called concurrently.
type Placement []uint64 // the seeds of the domains

// Place returns the placement among domains with these names.
func Place(domains ...string) Placement {
	p := make(Placement, len(domains))
	for i, name := range domains {
		p[i] = seed(name)
	}
	return p
}

// Keepers returns the indices of the k domains that keep a name, or of all if there are fewer. The
// first of them also keep it with a smaller k.
func (p Placement) Keepers(k int, name frame.GUID) []int {
	type scored struct {
		score  uint64
		number int
	}
	best := make([]scored, 0, k+1)
	for i, s := range p {
		x := scored{score(s, name), i}
		at, _ := slices.BinarySearchFunc(best, x.score, func(b scored, score uint64) int {
			if b.score > score {
				return -1
			}
			return 1
		})
		if at < k {
			best = slices.Insert(best, at, x)
			best = best[:min(len(best), k)]
		}
	}
	all := make([]int, len(best))
	for i, b := range best {
		all[i] = b.number
	}
	return all
}
