package config

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/sluice-net/sluice/internal/units"
)

// Secret is a text that is not shown by fmt, in a log, in JSON, or by "sluice config show". A
// conversion to string reveals it.
type Secret string

const hidden = "(hidden)"

// Redactor is implemented by types of settings whose secrets are removed before they are shown,
// also in messages about wrong values.
type Redactor interface {
	// Redact returns the part of a value, as it was written, that may be shown.
	Redact(text string) string
}

// String implements fmt.Stringer without revealing the secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return hidden
}

// GoString keeps %#v from revealing the secret.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// LogValue keeps a log from revealing the secret.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText keeps JSON and YAML from revealing the secret.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Size is a number of bytes, written like 256KiB, 1.5MB or 1500.
type Size int64

// UnmarshalText parses a size. A plain number is in bytes.
func (s *Size) UnmarshalText(b []byte) error {
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil || n < 0 {
		if n, err = units.ParseSize(string(b)); err != nil {
			return err
		}
	}
	*s = Size(n)
	return nil
}

// String returns the size as units.FormatSize does, but a plain number of bytes without a unit.
func (s Size) String() string {
	text := units.FormatSize(int64(s))
	if bytes, ok := strings.CutSuffix(text, "B"); ok && strings.Trim(bytes, "0123456789") == "" {
		return bytes
	}
	return text
}

// MarshalText implements encoding.TextMarshaler.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Address is the address of a server: an IP address and a port.
type Address struct{ netip.AddrPort }

// UnmarshalText parses "ADDRESS:PORT"; ":PORT" means every address.
func (a *Address) UnmarshalText(b []byte) error {
	text := string(b)
	if strings.HasPrefix(text, ":") {
		text = "[::]" + text
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return err
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	a.AddrPort, err = netip.ParseAddrPort(net.JoinHostPort(host, port))
	return err
}

// String returns the address, or "" if it is not set.
func (a Address) String() string {
	if !a.IsValid() {
		return ""
	}
	return a.AddrPort.String()
}

// MarshalText implements encoding.TextMarshaler.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// Loopback reports whether only this machine can reach the address.
func (a Address) Loopback() bool { return a.IsValid() && a.Addr().IsLoopback() }

// PortRange is a range of TCP ports, written like 40000-40999, or one port.
// The zero value lets the kernel choose.
type PortRange struct{ First, Last uint16 }

// UnmarshalText parses a range.
func (r *PortRange) UnmarshalText(b []byte) error {
	from, to, isRange := strings.Cut(string(b), "-")
	if !isRange {
		to = from
	}
	first, err := strconv.ParseUint(strings.TrimSpace(from), 10, 16)
	last, errLast := strconv.ParseUint(strings.TrimSpace(to), 10, 16)
	if err != nil || errLast != nil || first == 0 || last < first {
		return fmt.Errorf("want two ports like 40000-40999, or one: the first comes first and is not 0")
	}
	r.First, r.Last = uint16(first), uint16(last)
	return nil
}

// String returns the range, or "" if the kernel chooses.
func (r PortRange) String() string {
	switch {
	case r == PortRange{}:
		return ""
	case r.First == r.Last:
		return strconv.Itoa(int(r.First))
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// MarshalText implements encoding.TextMarshaler.
func (r PortRange) MarshalText() ([]byte, error) { return []byte(r.String()), nil }
