package sos

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

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

// portBlock is a value and a mask as a flow entry matches them.
type portBlock struct{ value, mask uint16 }

// blocks splits the range into the fewest masked values that cover exactly the range: at
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
