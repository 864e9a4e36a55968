package match

import (
	"fmt"
	"math/bits"
	"net/netip"
	"strconv"
	"strings"

	"github.com/sluice-net/sluice/openflow"
)

// parseNumber parses a decimal number, or a hexadecimal one with the prefix 0x.
func parseNumber(s string) (uint64, error) {
	if hex, ok := strings.CutPrefix(strings.ToLower(s), "0x"); ok {
		return strconv.ParseUint(hex, 16, 32)
	}
	return strconv.ParseUint(s, 10, 32)
}

// number returns a parser of a field that is a number.
func number(low, high uint64, want string, of func(uint32) openflow.OXM) func(string) ([]openflow.OXM, string) {
	return func(s string) ([]openflow.OXM, string) {
		n, err := parseNumber(s)
		if err != nil || n < low || n > high {
			return nil, want
		}
		return []openflow.OXM{of(uint32(n))}, ""
	}
}

// named parses a number that may be written as a name, and reports whether it is valid.
func named(s string, names map[string]uint32, high uint64) (uint32, bool) {
	if n, ok := names[strings.ToLower(s)]; ok {
		return n, true
	}
	n, err := parseNumber(s)
	return uint32(n), err == nil && n <= high
}

func mac(of func(openflow.MAC) openflow.OXM) func(string) ([]openflow.OXM, string) {
	return func(s string) ([]openflow.OXM, string) {
		m, err := openflow.ParseMAC(s)
		if err != nil {
			return nil, "a MAC address like 02:00:00:00:00:01"
		}
		return []openflow.OXM{of(m)}, ""
	}
}

func vlan(s string) ([]openflow.OXM, string) {
	if strings.EqualFold(s, "none") {
		return []openflow.OXM{openflow.NoVLAN()}, ""
	}
	return number(1, 4094, "a VLAN, 1 to 4094, or none", func(v uint32) openflow.OXM { return openflow.VLANVID(uint16(v)) })(s)
}

// prefix returns a parser of an address, or of a prefix that has no bits set beyond its length.
// Length zero matches every address of the family.
func prefix(family func(netip.Addr) bool, want string, of func(netip.Prefix) openflow.OXM) func(string) ([]openflow.OXM, string) {
	return func(s string) ([]openflow.OXM, string) {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			a, err := netip.ParseAddr(s)
			if err != nil || a.Zone() != "" {
				return nil, want
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		switch a := p.Addr(); {
		case !family(a) || a.Is4In6():
			return nil, want
		case p != p.Masked():
			return nil, fmt.Sprintf("%v (no bits beyond the length), or %v for the one address", p.Masked(), a)
		}
		return []openflow.OXM{of(p)}, ""
	}
}

// ports returns a parser of a port or a range of ports.
func ports(of func(uint16) openflow.OXM) func(string) ([]openflow.OXM, string) {
	return func(s string) ([]openflow.OXM, string) {
		first, last, isRange := strings.Cut(s, "-")
		if !isRange {
			last = first
		}
		a, errA := strconv.ParseUint(strings.TrimSpace(first), 10, 16)
		b, errB := strconv.ParseUint(strings.TrimSpace(last), 10, 16)
		if errA != nil || errB != nil || a == 0 || a > b {
			return nil, "a port, 1 to 65535, or a range like 5000-5100, the first port first"
		}
		var out []openflow.OXM
		for _, p := range blocks(uint32(a), uint32(b)) {
			out = append(out, of(p.value).WithMask(uint64(p.mask)))
		}
		return out, ""
	}
}

// block is a value and a mask as a flow entry matches them.
type block struct{ value, mask uint16 }

// blocks splits a range into the fewest masked values that cover exactly the range. It returns at
// most 30.
func blocks(first, last uint32) []block {
	var out []block
	for next, end := first, last+1; next < end; {
		size := uint32(1) << 16
		if next != 0 {
			size = 1 << bits.TrailingZeros32(next)
		}
		for next+size > end {
			size >>= 1
		}
		out = append(out, block{value: uint16(next), mask: uint16(-size)})
		next += size
	}
	return out
}
