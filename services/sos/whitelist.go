package sos

import (
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-net/sluice/kit"
)

// maxListItems and maxPunts bound the lists of one whitelist entry and the punt rules that it
// needs. maxEntries bounds the number of entries.
const (
	maxListItems = 16 // prefixes, or ranges of ports
	maxPunts     = 1024
	maxEntries   = 1024
)

// Entry allows transfers: SOS carries TCP connections from the clients to the servers'
// ports that are opened between Start and Stop.
type Entry struct {
	ID      string         `json:"id"`
	Name    string         `json:"name,omitempty"`
	Clients []netip.Prefix `json:"clients"`
	Servers []netip.Prefix `json:"servers"`
	Ports   []PortRange    `json:"ports"`
	// Start and Stop bound the time in which new connections are taken; zero means no
	// bound.
	Start time.Time `json:"start,omitzero"`
	Stop  time.Time `json:"stop,omitzero"`
	// Tuning overrides the global parameters for these transfers.
	Tuning Tuning    `json:"tuning,omitzero"`
	Added  time.Time `json:"added"`
}

// Active reports whether the entry takes new connections at the given time.
func (e *Entry) Active(at time.Time) bool {
	return !at.Before(e.Start) && (e.Stop.IsZero() || at.Before(e.Stop))
}

// overlaps reports whether the other entry allows the same connections at a common time. The later
// of the two would then never apply during that time.
func (e *Entry) overlaps(o *Entry) bool {
	apart := !e.Stop.IsZero() && !o.Start.Before(e.Stop) || !o.Stop.IsZero() && !e.Start.Before(o.Stop)
	return !apart && equalSets(e.Clients, o.Clients) && equalSets(e.Servers, o.Servers) && equalSets(e.Ports, o.Ports)
}

// equalSets reports whether two lists without repetitions have the same elements.
func equalSets[T comparable](a, b []T) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(x T) bool { return !slices.Contains(b, x) })
}

// Matches reports whether the entry allows connections from the client to the server.
func (e *Entry) Matches(client netip.Addr, server netip.AddrPort) bool {
	contains := func(a netip.Addr) func(netip.Prefix) bool {
		return func(p netip.Prefix) bool { return p.Contains(a) }
	}
	return slices.ContainsFunc(e.Ports, func(r PortRange) bool { return r.Contains(server.Port()) }) &&
		slices.ContainsFunc(e.Clients, contains(client)) &&
		slices.ContainsFunc(e.Servers, contains(server.Addr()))
}

// Whitelist is an immutable list of entries in the order in which they were added. The first
// matching entry decides.
type Whitelist []Entry

// Find returns the first active entry that matches the connection, and reports whether there is
// one.
func (w Whitelist) Find(at time.Time, client netip.Addr, server netip.AddrPort) (*Entry, bool) {
	for i := range w {
		if e := &w[i]; e.Active(at) && e.Matches(client, server) {
			return e, true
		}
	}
	return nil, false
}

// NextChange returns the next time at which an entry starts or stops; zero if none does.
func (w Whitelist) NextChange(after time.Time) time.Time {
	var next time.Time
	for i := range w {
		for _, t := range []time.Time{w[i].Start, w[i].Stop} {
			if t.After(after) && (next.IsZero() || t.Before(next)) {
				next = t
			}
		}
	}
	return next
}

// EntrySpec is a whitelist entry as an operator writes it.
type EntrySpec struct {
	Name    string     `json:"name,omitempty" maxLength:"64" doc:"What the entry is for, in the operator's words"`
	Clients []string   `json:"clients" format:"ip-prefix" minItems:"1" maxItems:"16" doc:"Who may: addresses or prefixes" example:"[\"10.0.0.0/24\"]"`
	Servers []string   `json:"servers" format:"ip-prefix" minItems:"1" maxItems:"16" doc:"To which servers: addresses or prefixes" example:"[\"10.1.0.7\"]"`
	Ports   []string   `json:"ports" format:"port-range" minItems:"1" maxItems:"16" doc:"At which server ports: ports or ranges" example:"[\"443\",\"8000-8099\"]"`
	Start   *time.Time `json:"start,omitempty" doc:"When it begins; now, if left out"`
	Stop    *time.Time `json:"stop,omitempty" doc:"When it ends; never, if left out. Running transfers continue"`
	Tuning  Tuning     `json:"tuning,omitzero" doc:"Parameters for these transfers; what is left out is taken from the configuration"`
}

// Parse returns the entry of the specification, or all of its faults.
func (s EntrySpec) Parse() (Entry, kit.Faults) {
	e := Entry{Name: s.Name, Tuning: s.Tuning}
	var faults kit.Faults
	e.Clients = parseList(&faults, "clients", s.Clients, "address or prefix", "addresses or prefixes", parsePrefix)
	e.Servers = parseList(&faults, "servers", s.Servers, "address or prefix", "addresses or prefixes", parsePrefix)
	e.Ports = parseList(&faults, "ports", s.Ports, "port or range", "ports or port ranges", ParsePortRange)
	if s.Start != nil {
		e.Start = s.Start.UTC()
	}
	if s.Stop != nil {
		e.Stop = s.Stop.UTC()
		if !e.Stop.After(e.Start) {
			faults.Add("stop", s.Stop, "a time after start")
		}
	}
	if faults = append(faults, s.Tuning.check().WithPrefix("tuning")...); len(faults) > 0 {
		return Entry{}, faults
	}
	switch n := len(punts(&e)); {
	case n == 0:
		faults = kit.Faults{{Field: "servers", Value: s.Servers, Want: "at least one server prefix of the address family of a client prefix"}}
	case n > maxPunts:
		faults = kit.Faults{{Field: "ports", Value: s.Ports, Want: fmt.Sprintf("fewer prefixes or simpler ranges: they make %d rules, at most %d", n, maxPunts)}}
	}
	return e, faults
}

// checkExpired returns a fault if the entry's time is over, so that it would never allow a
// connection.
func (e *Entry) checkExpired(now time.Time) kit.Faults {
	if e.Stop.IsZero() || e.Stop.After(now) {
		return nil
	}
	return kit.Faults{{Field: "stop", Value: e.Stop, Want: "a time to come: it is " + now.UTC().Format(time.RFC3339) + " now, and the entry would never allow anything"}}
}

// parseList parses a list without repetitions, and adds its errors to the faults.
func parseList[T comparable](faults *kit.Faults, field string, in []string, one, several string, parse func(string) (T, error)) (out []T) {
	if len(in) == 0 || len(in) > maxListItems {
		faults.Add(field, in, "1 to %d %s", maxListItems, several)
		return nil
	}
	for i, text := range in {
		x, err := parse(text)
		switch {
		case err != nil:
			faults.Add(fmt.Sprintf("%s[%d]", field, i), text, "%v", err)
		case slices.Contains(out, x):
			faults.Add(fmt.Sprintf("%s[%d]", field, i), text, "each %s once", one)
		default:
			out = append(out, x)
		}
	}
	return out
}

// parsePrefix parses an address, or a prefix that has no bits set beyond its length.
func parsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		a, aerr := netip.ParseAddr(s)
		if aerr != nil {
			return p, fmt.Errorf("an address like 10.0.0.7 or a prefix like 10.0.0.0/24 or 2001:db8::/64")
		}
		if a.Zone() != "" {
			return p, fmt.Errorf("an address without a zone")
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	a := p.Addr()
	switch {
	case a.Is4In6():
		return p, fmt.Errorf("the plain IPv4 form, %v", a.Unmap())
	case p != p.Masked():
		return p, fmt.Errorf("%v (no bits beyond the length), or %v/%d for the one address", p.Masked(), a, a.BitLen())
	case a.IsMulticast():
		return p, fmt.Errorf("a unicast address: TCP has no multicast")
	}
	return p, nil
}

// PortRange is a range of TCP ports, both ends included.
type PortRange struct{ First, Last uint16 }

// ParsePortRange parses "443" or "8000-8099".
func ParsePortRange(s string) (PortRange, error) {
	first, last, isRange := strings.Cut(s, "-")
	if !isRange {
		last = first
	}
	var r PortRange
	var err error
	if r.First, err = parsePort(first); err == nil {
		r.Last, err = parsePort(last)
	}
	if err != nil {
		return PortRange{}, fmt.Errorf("port range %q: %w", s, err)
	}
	if r.First > r.Last {
		return PortRange{}, fmt.Errorf("port range %q: the first port is above the last; write %d-%d", s, r.Last, r.First)
	}
	return r, nil
}

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a port: want 1 to 65535, or a range like 8000-8099", s)
	}
	return uint16(n), nil
}

// Contains reports whether the port lies in the range.
func (r PortRange) Contains(port uint16) bool { return r.First <= port && port <= r.Last }

// String returns the range in the form that ParsePortRange reads.
func (r PortRange) String() string {
	if r.First == r.Last {
		return strconv.Itoa(int(r.First))
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// MarshalText returns the range as String does.
func (r PortRange) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText parses the range as ParsePortRange does.
func (r *PortRange) UnmarshalText(b []byte) (err error) {
	*r, err = ParsePortRange(string(b))
	return err
}

// portBlock is a value and a mask, in the form in which a flow entry matches them.
type portBlock struct{ value, mask uint16 }

// blocks splits the range into the fewest masked values that cover exactly the range. It returns at
// most 30.
func (r PortRange) blocks() []portBlock {
	var out []portBlock
	next, end := uint32(r.First), uint32(r.Last)+1
	for next < end {
		size := uint32(1) << 16
		if next != 0 {
			size = 1 << bits.TrailingZeros32(next)
		}
		for next+size > end {
			size >>= 1
		}
		out = append(out, portBlock{value: uint16(next), mask: uint16(-size)})
		next += size
	}
	return out
}
