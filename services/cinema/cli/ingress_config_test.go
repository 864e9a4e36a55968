package cli

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/config/configtest"
)

const (
	ingressCerts  = "control: {listen: '192.0.2.1:8440', tls: {cert: FILE, key: FILE, ca: FILE}}\n"
	ingressPublic = "public: {listen: '192.0.2.1:8460', tls: {cert: FILE, key: FILE}}\n"
)

var ingressWrongs = []configtest.Wrong{
	{Name: "no certificate", Text: "name: west", Line: 0, Key: "control.tls.cert", Value: "", Want: "sluice pki issue"},
	{Name: "no authority", Text: "control: {tls: {cert: FILE, key: FILE}}", Line: 1, Key: "control.tls.ca", Value: "", Want: "authority"},
	{Name: "public without TLS", Text: ingressCerts + "public: {listen: '192.0.2.1:8460'}", Line: 2, Key: "public.tls.cert", Value: "", Want: "public.plaintext"},
	{Name: "public everywhere without TLS", Text: ingressCerts + "public: {listen: ':8460'}", Line: 2, Key: "public.tls.cert", Value: "", Want: "public.plaintext"},
	{Name: "certificate without a key", Text: ingressCerts + "public: {tls: {cert: FILE}}", Line: 2, Key: "public.tls.cert", Value: "", Want: "belong together"},
	{Name: "clients with certificates", Text: ingressCerts + "public: {tls: {cert: FILE, key: FILE, ca: FILE}}", Line: 2, Key: "public.tls.ca", Value: "", Want: "password"},
	{Name: "both at one address", Text: ingressCerts + "public: {listen: '192.0.2.1:8440', plaintext: true}", Line: 2, Key: "public.listen", Value: "192.0.2.1:8440", Want: "of its own"},
	{Name: "data address of IPv6", Text: ingressCerts + "data: {address: '2001:db8::1'}", Line: 2, Key: "data.address", Value: "2001:db8::1", Want: "IPv4"},
	{Name: "data address of a group", Text: ingressCerts + "data: {address: 224.0.0.1}", Line: 2, Key: "data.address", Value: "224.0.0.1", Want: "IPv4"},
	{Name: "no data address", Text: "control: {listen: ':8440', tls: {cert: FILE, key: FILE, ca: FILE}}", Line: 0, Key: "data.address", Value: "", Want: "one IPv4 address"},
	{Name: "no channels", Text: ingressCerts + "max_channels: 0", Line: 2, Key: "max_channels", Value: "0", Want: "from 1 to 1000"},
	{Name: "no program", Text: ingressCerts + "ffmpeg: ''", Line: 2, Key: "ffmpeg", Value: "", Want: "like ffmpeg"},
	{Name: "a program with flags", Text: ingressCerts + "ffmpeg: 'ffmpeg -v error'", Line: 2, Key: "ffmpeg", Value: "ffmpeg -v error", Want: "name or path"},
	{Name: "announced to nobody", Text: ingressCerts + "announce: {url: 'https://192.0.2.1:8440'}", Line: 2, Key: "announce.server", Value: "", Want: "announce.url"},
	{Name: "a URL with a query", Text: ingressCerts + "public: {url: 'https://live.example.org/x?y'}", Line: 2, Key: "public.url", Value: "https://live.example.org/x?y", Want: "a URL like"},
	{Name: "an address that nobody reaches", Text: ingressCerts + "ice: {addresses: [192.0.2.1, '::']}", Line: 2, Key: "ice.addresses[1]", Value: "", Want: "unicast address"},
	{Name: "a proxy of IPv4 as IPv6", Text: ingressCerts + "public: {trusted_proxies: ['::ffff:192.0.2.1/128']}", Line: 2, Key: "public.trusted_proxies[0]", Value: "", Want: "IPv4 prefix itself"},
	{Name: "a header of no proxy", Text: ingressCerts + "public: {forwarded_header: X-Real-IP}", Line: 2, Key: "public.forwarded_header", Value: "X-Real-IP", Want: "Forwarded"},
	{Name: "everybody trusted", Text: ingressCerts + "public: {trusted_proxies: [192.0.2.1/32, 0.0.0.0/0]}", Line: 2, Key: "public.trusted_proxies[1]", Value: "", Want: "own addresses"},
	{Name: "sessions, which agents have", Text: ingressCerts + "sessions: {max: 3}", Line: 2, Key: "sessions", Value: "", Want: "known here"},
}

func TestIngressRefuses(t *testing.T) {
	configtest.Refuses(t, ingressWrongs, func() config.Checked { return DefaultIngress() })
}

func TestIngress(t *testing.T) {
	g := DefaultIngress()
	text := strings.ReplaceAll(ingressCerts+ingressPublic+"name: west\nmax_channels: 9\nice: {addresses: [203.0.113.7]}\ndata: {address: 10.0.0.1}\nannounce: {server: 'https://192.0.2.9:8443'}\n", "FILE", configtest.File(t))
	if err := config.Parse(config.Sources{File: "f.yaml"}, []byte(text), g); err != nil {
		t.Fatal(err)
	}
	again := DefaultIngress()
	if err := config.Parse(config.Sources{File: "again"}, []byte(config.Example(g)), again); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(g, again, cmp.Comparer(func(a, b config.Address) bool { return a.AddrPort == b.AddrPort }), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()); d != "" {
		t.Errorf("reads back differently:\n%s", d)
	}
	a := g.Agent()
	if a.Name != "west" || a.First() != netip.MustParseAddr("10.0.0.1") || a.Sessions.Max != 9 || a.Announce.Server != "https://192.0.2.9:8443" || a.Control.TLS.CA == "" {
		t.Errorf("as an agent: %+v", a)
	}
	// Without an address of its own for data it is that of the controller's interface.
	if g.Data.Address = (netip.Addr{}); g.First() != netip.MustParseAddr("192.0.2.1") {
		t.Errorf("data address %v", g.First())
	}
	next := *g
	next.Log.Level, next.MaxChannels = "debug", 3
	if now := config.Adopt(g, &next); now.Logging().Level != "debug" || now.MaxChannels != 9 {
		t.Errorf("after another reading: %+v", now)
	}
}
