package config

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	egressCerts  = "control: {listen: '192.0.2.1:8440', tls: {cert: FILE, key: FILE, ca: FILE}}\nannounce: {server: 'https://192.0.2.9:8443'}\n"
	egressPublic = "public: {listen: '192.0.2.1:8450', tls: {cert: FILE, key: FILE}}\n"
)

var egressWrongs = []wrong{
	{"no certificate", "announce: {server: 'https://192.0.2.9:8443'}", 0, "control.tls.cert", "", "sluice pki issue"},
	{"no controller", "control: {listen: '192.0.2.1:8440', tls: {cert: FILE, key: FILE, ca: FILE}}", 0, "announce.server", "", "controller's API"},
	{"a token", strings.Replace(egressCerts, "8443'}", "8443', token_file: FILE}", 1), 2, "announce.token_file", "", "remove it"},
	{"public without TLS", egressCerts + "public: {listen: '192.0.2.1:8450'}", 3, "public.tls.cert", "", "public.plaintext"},
	{"public everywhere, called nothing", egressCerts + "public: {listen: ':8450', plaintext: true}\nice: {addresses: [192.0.2.1]}", 3, "public.url", "", "what people call"},
	{"public everywhere, no address for media", egressCerts + "public: {listen: ':8450', plaintext: true, url: 'https://tv.example.org'}", 0, "ice.addresses", "", "browsers reach"},
	{"any address for media", egressCerts + "ice: {addresses: [0.0.0.0]}", 3, "ice.addresses[0]", "0.0.0.0", "unicast"},
	{"too many addresses for media", egressCerts + "ice: {addresses: [10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4, 10.0.0.5, 10.0.0.6, 10.0.0.7, 10.0.0.8, 10.0.0.9]}", 3, "ice.addresses", "", "at most 8"},
	{"no address", egressCerts + "ice: {addresses: [gateway]}", 3, "ice.addresses[0]", "gateway", "an IP address"},
	{"a port that is none", egressCerts + "ice: {port: 70000}", 3, "ice.port", "70000", "from 0 to 65535"},
	{"data address of IPv6", egressCerts + "data: {address: '2001:db8::1'}", 3, "data.address", "2001:db8::1", "IPv4"},
	{"ports of the system", egressCerts + "data: {ports: 80-9000}", 3, "data.ports", "80-9000", "from 1024"},
	{"fewer ports than viewers", egressCerts + "data: {ports: 30000-30099}", 3, "data.ports", "30000-30099", "max_viewers is 500"},
	{"buckets of somebody else", egressCerts + "data: {buckets: switch}", 3, "data.buckets", "switch", "viewer"},
	{"no viewers", egressCerts + "max_viewers: 0", 3, "max_viewers", "0", "from 1 to 100000"},
	{"clients with certificates", egressCerts + "public: {tls: {cert: FILE, key: FILE, ca: FILE}}", 3, "public.tls.ca", "", "password"},
	{"both at one address", egressCerts + "public: {listen: '192.0.2.1:8440', plaintext: true}", 3, "public.listen", "192.0.2.1:8440", "of its own"},
}

func TestEgressRefuses(t *testing.T) {
	file := someFile(t)
	for _, w := range egressWrongs {
		t.Run(w.name, func(t *testing.T) {
			checkWrong(t, w, parse(Sources{File: "f.yaml"}, []byte(strings.ReplaceAll(w.text, "FILE", file)), DefaultEgress()))
		})
	}
}

// A gateway that copies to its viewers itself needs one port.
func TestEgressShares(t *testing.T) {
	text := strings.ReplaceAll(egressCerts+"data: {buckets: gateway, ports: 30000-30000}", "FILE", someFile(t))
	if err := parse(Sources{File: "f.yaml"}, []byte(text), DefaultEgress()); err != nil {
		t.Error(err)
	}
}

func TestEgress(t *testing.T) {
	e := DefaultEgress()
	text := strings.ReplaceAll(egressCerts+egressPublic+"name: west\nmax_viewers: 9\ndata: {address: 10.0.0.1}\n", "FILE", someFile(t))
	if err := parse(Sources{File: "f.yaml"}, []byte(text), e); err != nil {
		t.Fatal(err)
	}
	again := DefaultEgress()
	if err := parse(Sources{File: "again"}, []byte(Example(e)), again); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(e, again, same...); d != "" {
		t.Errorf("reads back differently:\n%s", d)
	}
	if a := e.Agent(); a.Name != "west" || a.First() != netip.MustParseAddr("10.0.0.1") || a.Sessions.Max != 9 || a.Announce.Server == "" || a.Control.TLS.CA == "" {
		t.Errorf("as an agent: %+v", a)
	}
	if got := e.Media(); !slices.Equal(got, []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:8450")}) || e.URL() != "https://192.0.2.1:8450" {
		t.Errorf("%v, %s", got, e.URL())
	}
	e.ICE, e.Public.URL = ICE{Addresses: []netip.Addr{netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("2001:db8::1")}, Port: 3478}, "https://tv.example.org"
	if got := e.Media(); len(got) != 2 || got[1] != netip.MustParseAddrPort("[2001:db8::1]:3478") || e.URL() != "https://tv.example.org" {
		t.Errorf("%v, %s", got, e.URL())
	}
	next := *e
	next.Log.Level, next.MaxViewers = "debug", 3
	if now := e.Adopt(&next); now.Logging().Level != "debug" || now.MaxViewers != 9 {
		t.Errorf("after another reading: %+v", now)
	}
}
