package config

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	ingressCerts  = "control: {listen: '192.0.2.1:8440', tls: {cert: FILE, key: FILE, ca: FILE}}\n"
	ingressPublic = "public: {listen: '192.0.2.1:8460', tls: {cert: FILE, key: FILE}}\n"
)

var ingressWrongs = []wrong{
	{"no certificate", "name: west", 0, "control.tls.cert", "", "sluice pki issue"},
	{"no authority", "control: {tls: {cert: FILE, key: FILE}}", 1, "control.tls.ca", "", "authority"},
	{"public without TLS", ingressCerts + "public: {listen: '192.0.2.1:8460'}", 2, "public.tls.cert", "", "public.plaintext"},
	{"public everywhere without TLS", ingressCerts + "public: {listen: ':8460'}", 2, "public.tls.cert", "", "public.plaintext"},
	{"certificate without a key", ingressCerts + "public: {tls: {cert: FILE}}", 2, "public.tls.cert", "", "belong together"},
	{"clients with certificates", ingressCerts + "public: {tls: {cert: FILE, key: FILE, ca: FILE}}", 2, "public.tls.ca", "", "password"},
	{"both at one address", ingressCerts + "public: {listen: '192.0.2.1:8440', plaintext: true}", 2, "public.listen", "192.0.2.1:8440", "of its own"},
	{"data address of IPv6", ingressCerts + "data: {address: '2001:db8::1'}", 2, "data.address", "2001:db8::1", "IPv4"},
	{"data address of a group", ingressCerts + "data: {address: 224.0.0.1}", 2, "data.address", "224.0.0.1", "IPv4"},
	{"no data address", "control: {listen: ':8440', tls: {cert: FILE, key: FILE, ca: FILE}}", 0, "data.address", "", "one IPv4 address"},
	{"no channels", ingressCerts + "max_channels: 0", 2, "max_channels", "0", "from 1 to 1000"},
	{"no program", ingressCerts + "ffmpeg: ''", 2, "ffmpeg", "", "like ffmpeg"},
	{"a program with flags", ingressCerts + "ffmpeg: 'ffmpeg -v error'", 2, "ffmpeg", "ffmpeg -v error", "name or path"},
	{"announced to nobody", ingressCerts + "announce: {url: 'https://192.0.2.1:8440'}", 2, "announce.server", "", "announce.url"},
	{"a URL with a path", ingressCerts + "public: {url: 'https://live.example.org/x'}", 2, "public.url", "https://live.example.org/x", "a URL like"},
	{"a proxy of IPv4 as IPv6", ingressCerts + "public: {trusted_proxies: ['::ffff:192.0.2.1/128']}", 2, "public.trusted_proxies[0]", "", "IPv4 prefix itself"},
	{"everybody trusted", ingressCerts + "public: {trusted_proxies: [192.0.2.1/32, 0.0.0.0/0]}", 2, "public.trusted_proxies[1]", "", "own addresses"},
	{"sessions, which agents have", ingressCerts + "sessions: {max: 3}", 2, "sessions", "", "known here"},
}

func TestIngressRefuses(t *testing.T) {
	file := someFile(t)
	for _, w := range ingressWrongs {
		t.Run(w.name, func(t *testing.T) {
			checkWrong(t, w, parse(Sources{File: "f.yaml"}, []byte(strings.ReplaceAll(w.text, "FILE", file)), DefaultIngress()))
		})
	}
}

func TestIngress(t *testing.T) {
	g := DefaultIngress()
	text := strings.ReplaceAll(ingressCerts+ingressPublic+"name: west\nmax_channels: 9\ndata: {address: 10.0.0.1}\nannounce: {server: 'https://192.0.2.9:8443'}\n", "FILE", someFile(t))
	if err := parse(Sources{File: "f.yaml"}, []byte(text), g); err != nil {
		t.Fatal(err)
	}
	again := DefaultIngress()
	if err := parse(Sources{File: "again"}, []byte(Example(g)), again); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(g, again, same...); d != "" {
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
	if now := g.Adopt(&next); now.Logging().Level != "debug" || now.MaxChannels != 9 {
		t.Errorf("after another reading: %+v", now)
	}
}
