package ovsdb

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
)

// CheckTarget returns an error if the target is invalid. The forms are tcp:ADDRESS:PORT,
// ssl:ADDRESS:PORT and unix:/PATH, with literal addresses, as in ovsdb(7).
func CheckTarget(target string) error {
	kind, rest, _ := strings.Cut(target, ":")
	switch kind {
	case "unix":
		if filepath.IsAbs(rest) {
			return nil
		}
	case "tcp", "ssl":
		if at, err := netip.ParseAddrPort(rest); err == nil && at.Port() != 0 {
			return nil
		}
	}
	return fmt.Errorf("database %q: want tcp:ADDRESS:PORT, ssl:ADDRESS:PORT or unix:/PATH", target)
}

// Expand replaces {address} and {name} in a template such as "ssl:{address}:6640" or
// "unix:/run/switches/{name}/db.sock" by a switch's own address and name.
func Expand(template string, address netip.Addr, name string) (string, error) {
	if strings.Contains(template, "{name}") && name == "" {
		return "", fmt.Errorf("database %q: the switch has no name; give it one in network.switches", template)
	}
	host := address.Unmap().String()
	if address.Is6() && !address.Is4In6() {
		host = "[" + host + "]"
	}
	target := strings.NewReplacer("{address}", host, "{name}", name).Replace(template)
	return target, CheckTarget(target)
}
