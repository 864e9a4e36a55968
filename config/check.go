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

var typeAddress = reflect.TypeFor[Address]()

// checker looks for what single values cannot show.
type checker struct {
	d *decoder
	// noFiles leaves out whether named files exist.
	noFiles bool
}

// fail reports a problem with the setting, at the place where it or the
// nearest section around it was given.
func (k *checker) fail(key, wrong, want string) {
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

// require notes that a setting is wrong unless ok.
func (k *checker) require(ok bool, key, wrong, want string) {
	if !ok {
		k.fail(key, wrong, want)
	}
}

// tls checks that the parts of a certificate are there. mutual wants an
// authority, too, as soon as there is a certificate.
func (k *checker) tls(key string, t TLS, mutual bool) {
	k.require((t.Cert == "") == (t.Key == ""), key+".cert", "incomplete", "cert and key belong together: set both or none")
	k.require(!mutual || t.Cert == "" || t.CA != "", key+".ca", "missing", "name the authority of the other side's certificates")
	k.require(!mutual || t.Cert != "" || t.CA == "", key+".cert", "missing", "name certificate and key beside the authority")
	k.require(len(t.Roles) == 0 || t.CA != "", key+".roles", "without an authority", "set "+key+".ca, which the certificates of those named are of")
}

// distinct checks that no two servers listen on the same address.
func (k *checker) distinct(key string, all []Address) {
	seen := map[netip.AddrPort]bool{}
	for _, a := range all {
		if !a.IsValid() || a.Port() == 0 {
			continue
		}
		k.require(!seen[a.AddrPort], key, fmt.Sprintf("two servers on %s", a), "give each an address or port of its own")
		seen[a.AddrPort] = true
	}
}

// files checks that the files which the configuration names are there.
func (k *checker) files(config any) {
	if k.noFiles {
		return
	}
	eachFile(config, func(key, name string) {
		info, err := os.Stat(name)
		switch {
		case err != nil:
			k.fail(key, "cannot be used ("+strings.TrimPrefix(err.Error(), "stat ")+")", "the path of a file that is there")
		case info.IsDir():
			k.fail(key, "a folder", "the path of a file in "+filepath.Clean(name))
		}
	})
}

// eachFile visits the files that a configuration names.
func eachFile(config any, visit func(key, name string)) {
	walk(reflect.ValueOf(config).Elem(), "", func(s setting) {
		name, ok := s.value.Interface().(string)
		if ok && name != "" && s.field.Tag.Get("file") == "yes" {
			visit(s.key, name)
		}
	})
}

// Files lists the files that a configuration names and a program reads, each once.
func Files(config any) []string {
	var names []string
	eachFile(config, func(_, name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	})
	return names
}

func loopback(port uint16) Address {
	return Address{netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)}
}

// DefaultDataDir is where state lives unless configured: /var/lib/sluice for
// root and services, else a folder of the user.
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
