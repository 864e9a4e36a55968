package cli

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/config/configtest"
)

const (
	egressCerts  = "control: {listen: '192.0.2.1:8440', tls: {cert: FILE, key: FILE, ca: FILE}}\nannounce: {server: 'https://192.0.2.9:8443'}\n"
	egressPublic = "public: {listen: '192.0.2.1:8450', tls: {cert: FILE, key: FILE}}\n"
)

var egressWrongs = []configtest.Wrong{
	{Name: "no certificate", Text: "announce: {server: 'https://192.0.2.9:8443'}", Line: 0, Key: "control.tls.cert", Value: "", Want: "sluice pki issue"},
	{Name: "no controller", Text: "control: {listen: '192.0.2.1:8440', tls: {cert: FILE, key: FILE, ca: FILE}}", Line: 0, Key: "announce.server", Value: "", Want: "controller's API"},
	{Name: "a token", Text: strings.Replace(egressCerts, "8443'}", "8443', token_file: FILE}", 1), Line: 2, Key: "announce.token_file", Value: "", Want: "remove it"},
	{Name: "public without TLS", Text: egressCerts + "public: {listen: '192.0.2.1:8450'}", Line: 3, Key: "public.tls.cert", Value: "", Want: "public.plaintext"},
	{Name: "public everywhere, called nothing", Text: egressCerts + "public: {listen: ':8450', plaintext: true}\nice: {addresses: [192.0.2.1]}", Line: 3, Key: "public.url", Value: "", Want: "what people call"},
	{Name: "public everywhere, no address for media", Text: egressCerts + "public: {listen: ':8450', plaintext: true, url: 'https://tv.example.org'}", Line: 0, Key: "ice.addresses", Value: "", Want: "browsers reach"},
	{Name: "any address for media", Text: egressCerts + "ice: {addresses: [0.0.0.0]}", Line: 3, Key: "ice.addresses[0]", Value: "0.0.0.0", Want: "unicast"},
	{Name: "too many addresses for media", Text: egressCerts + "ice: {addresses: [10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4, 10.0.0.5, 10.0.0.6, 10.0.0.7, 10.0.0.8, 10.0.0.9]}", Line: 3, Key: "ice.addresses", Value: "", Want: "at most 8"},
	{Name: "no address", Text: egressCerts + "ice: {addresses: [gateway]}", Line: 3, Key: "ice.addresses[0]", Value: "gateway", Want: "an IP address"},
	{Name: "a port that is none", Text: egressCerts + "ice: {port: 70000}", Line: 3, Key: "ice.port", Value: "70000", Want: "from 0 to 65535"},
	{Name: "data address of IPv6", Text: egressCerts + "data: {address: '2001:db8::1'}", Line: 3, Key: "data.address", Value: "2001:db8::1", Want: "IPv4"},
	{Name: "ports of the system", Text: egressCerts + "data: {ports: 80-9000}", Line: 3, Key: "data.ports", Value: "80-9000", Want: "from 1024"},
	{Name: "fewer ports than viewers", Text: egressCerts + "data: {ports: 30000-30099}", Line: 3, Key: "data.ports", Value: "30000-30099", Want: "max_viewers is 500"},
	{Name: "buckets of somebody else", Text: egressCerts + "data: {buckets: switch}", Line: 3, Key: "data.buckets", Value: "switch", Want: "viewer"},
	{Name: "no viewers", Text: egressCerts + "max_viewers: 0", Line: 3, Key: "max_viewers", Value: "0", Want: "from 1 to 100000"},
	{Name: "clients with certificates", Text: egressCerts + "public: {tls: {cert: FILE, key: FILE, ca: FILE}}", Line: 3, Key: "public.tls.ca", Value: "", Want: "password"},
	{Name: "both at one address", Text: egressCerts + "public: {listen: '192.0.2.1:8440', plaintext: true}", Line: 3, Key: "public.listen", Value: "192.0.2.1:8440", Want: "of its own"},
}

func TestEgressRefuses(t *testing.T) {
	configtest.Refuses(t, egressWrongs, func() config.Checked { return DefaultEgress() })
}

// A gateway that copies to its viewers itself needs one port.
func TestEgressShares(t *testing.T) {
	text := strings.ReplaceAll(egressCerts+"data: {buckets: gateway, ports: 30000-30000}", "FILE", configtest.File(t))
	if err := config.Parse(config.Sources{File: "f.yaml"}, []byte(text), DefaultEgress()); err != nil {
		t.Error(err)
	}
}

func TestEgress(t *testing.T) {
	e := DefaultEgress()
	text := strings.ReplaceAll(egressCerts+egressPublic+"name: west\nmax_viewers: 9\ndata: {address: 10.0.0.1}\n", "FILE", configtest.File(t))
	if err := config.Parse(config.Sources{File: "f.yaml"}, []byte(text), e); err != nil {
		t.Fatal(err)
	}
	again := DefaultEgress()
	if err := config.Parse(config.Sources{File: "again"}, []byte(config.Example(e)), again); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(e, again, cmp.Comparer(func(a, b config.Address) bool { return a.AddrPort == b.AddrPort }), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()); d != "" {
		t.Errorf("reads back differently:\n%s", d)
	}
	if a := e.Agent(); a.Name != "west" || a.First() != netip.MustParseAddr("10.0.0.1") || a.Sessions.Max != 9 || a.Announce.Server == "" || a.Control.TLS.CA == "" {
		t.Errorf("as an agent: %+v", a)
	}
	if got := e.Media(); !slices.Equal(got, []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:8450")}) || e.URL() != "https://192.0.2.1:8450" {
		t.Errorf("%v, %s", got, e.URL())
	}
	e.ICE, e.Public.URL = ICE{Addresses: []netip.Addr{netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("2001:db8::1")}, Port: 3478}, "https://tv.example.org/west"
	if got := e.Media(); len(got) != 2 || got[1] != netip.MustParseAddrPort("[2001:db8::1]:3478") || e.URL() != "https://tv.example.org/west" {
		t.Errorf("%v, %s", got, e.URL())
	}
	next := *e
	next.Log.Level, next.MaxViewers = "debug", 3
	if now := config.Adopt(e, &next); now.Logging().Level != "debug" || now.MaxViewers != 9 {
		t.Errorf("after another reading: %+v", now)
	}
}
