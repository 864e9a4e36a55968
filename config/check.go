package config

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// A Checker collects problems of a configuration beyond those of its single values, which are checked
// when they are read.
type Checker struct {
	d *decoder
	// noFiles reports whether the existence of files is not checked.
	noFiles bool
}

// Fail reports that a setting is wrong, and what is wanted instead. The problem names the file and line
// (or the variable or flag) where the setting, or the nearest section around it, was given.
func (k *Checker) Fail(key, wrong, want string) {
	at := key
	p, given := k.d.places[at]
	for !given && at != "" {
		at = at[:max(strings.LastIndexByte(at, '.'), 0)]
		p, given = k.d.places[at]
	}
	if at != key || p.value == "a mapping" || p.value == "a list" {
		p.value = ""
	}
	k.d.add(p, key, wrong, want)
}

// Require reports that a setting is wrong, as Fail does, unless ok is true.
func (k *Checker) Require(ok bool, key, wrong, want string) {
	if !ok {
		k.Fail(key, wrong, want)
	}
}

// TLS checks that a certificate is complete. mutual reports whether a certificate also needs an
// authority.
func (k *Checker) TLS(key string, t TLS, mutual bool) {
	k.Require((t.Cert == "") == (t.Key == ""), key+".cert", "incomplete", "cert and key belong together: set both or none")
	k.Require(!mutual || t.Cert == "" || t.CA != "", key+".ca", "missing", "name the authority of the other side's certificates")
	k.Require(!mutual || t.Cert != "" || t.CA == "", key+".cert", "missing", "name certificate and key beside the authority")
	k.Require(len(t.Roles) == 0 || t.CA != "", key+".roles", "without an authority", "set "+key+".ca, which the certificates of those named are of")
}

// Distinct checks that no two servers listen on the same address.
func (k *Checker) Distinct(key string, all []Address) {
	seen := map[netip.AddrPort]bool{}
	for _, a := range all {
		if !a.IsValid() || a.Port() == 0 {
			continue
		}
		k.Require(!seen[a.AddrPort], key, fmt.Sprintf("two servers on %s", a), "give each an address or port of its own")
		seen[a.AddrPort] = true
	}
}

// Files checks that the files that the configuration names exist.
func (k *Checker) Files(config any) {
	if k.noFiles {
		return
	}
	eachFile(config, func(key, name string) {
		info, err := os.Stat(name)
		switch {
		case err != nil:
			k.Fail(key, "cannot be used ("+strings.TrimPrefix(err.Error(), "stat ")+")", "the path of a file that is there")
		case info.IsDir():
			k.Fail(key, "a folder", "the path of a file in "+filepath.Clean(name))
		}
	})
}

// eachFile calls visit for each file that a configuration names.
func eachFile(config any, visit func(key, name string)) {
	walk(reflect.ValueOf(config).Elem(), "", func(s setting) {
		name, ok := s.value.Interface().(string)
		if ok && name != "" && s.tag.Get("file") == "yes" {
			visit(s.key, name)
		}
	})
}

// Files returns the files that a configuration names for reading, each once.
func Files(config any) []string {
	var names []string
	eachFile(config, func(_, name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	})
	return names
}

// Loopback returns an address of the loopback interface.
func Loopback(port uint16) Address {
	return Address{netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)}
}

// DefaultDataDir returns the default folder for state: that of the systemd service, /var/lib/sluice
// for root, and otherwise a folder of the user.
func DefaultDataDir() string {
	if dir := os.Getenv("STATE_DIRECTORY"); dir != "" { // set by systemd
		return strings.Split(dir, ":")[0]
	}
	home, err := os.UserHomeDir()
	if os.Geteuid() == 0 || err != nil {
		return "/var/lib/sluice"
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "sluice")
	}
	return filepath.Join(home, ".local", "state", "sluice")
}
