package cinema

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// aHash is one of "secret".
const aHash = "$2a$04$VnEmCaLTLxOgjuFTF7bk3.cF4Nd3xxRGiH2xcQf2F1bBVvRAmyHGG"

func readCinema(text string) (*config.Controller, error) {
	c := config.DefaultController(kit.Sections([]kit.Definition{Definition()}))
	return c, config.Parse(config.Sources{File: "f.yaml"}, []byte(text), c)
}

// Channels stand in the file by name, with hashes of passwords.
func TestCinema(t *testing.T) {
	c, err := readCinema(`
cinema:
  media_address: 198.19.0.1
  link_share: 0.25
  link_macs: true
  channels:
    news: {number: 1, title: The News, source: "rtsp://10.0.0.7/live", bit_rate: 2Mbit, picture: 1080p, ingress: studio}
    stage: {number: 2, bit_rate: 3Mbit, view_hash: "` + aHash + `", publish_hash: "` + aHash + `"}
`)
	if err != nil {
		t.Fatal(err)
	}
	if config.Of[*Section](c).MediaAddress.String() != "198.19.0.1" || config.Of[*Section](c).LinkShare != 0.25 || !config.Of[*Section](c).LinkMACs || !config.Of[*Section](c).Enabled {
		t.Errorf("%+v", config.Of[*Section](c))
	}
	all, faults := config.Of[*Section](c).ParsedChannels()
	want := Channel{Name: "news", Number: 1, Title: "The News", Source: "rtsp://10.0.0.7/live", BitRate: 2e6, Picture: gatewayapi.Picture1080p, Ingress: "studio"}
	if len(faults) > 0 || len(all) != 2 || all["news"] != want || all["stage"].ViewHash != aHash || all["stage"].PublishHash != aHash {
		t.Errorf("%+v, faults %v", all, faults)
	}
	news := all["news"]
	if g := news.forGateway(DefaultMedia); g.Picture != gatewayapi.Picture1080p || declared(&news).Picture != gatewayapi.Picture1080p {
		t.Errorf("the gateway gets %+v, and the API shows %+v", g, declared(&news))
	}
	if d := DefaultSection(); d.MediaAddress != DefaultMedia || d.LinkShare != DefaultShare || d.LinkMACs {
		t.Errorf("default %+v", d)
	}
}

func TestCinemaRefuses(t *testing.T) {
	for key, text := range map[string]string{
		"cinema.media_address":           `media_address: 224.0.0.1`,
		"cinema.link_share":              `link_share: 2`,
		"cinema.control_subnets":         `control_subnets: [10.0.0.0/33]`,
		"cinema.channels.a.number":       `channels: {a: {bit_rate: 1Mbit}}`,
		"cinema.channels.b.number":       `channels: {a: {number: 1, bit_rate: 1Mbit}, b: {number: 1, bit_rate: 1Mbit}}`,
		"cinema.channels.a.bit_rate":     `channels: {a: {number: 1}}`,
		"cinema.channels.a.picture":      `channels: {a: {number: 1, bit_rate: 1Mbit, picture: 4k}}`,
		"cinema.channels.A.name":         `channels: {A: {number: 1, bit_rate: 1Mbit}}`,
		"cinema.channels.a.source":       `channels: {a: {number: 1, bit_rate: 1Mbit, source: "ftp://x"}}`,
		"cinema.channels.p.source":       `channels: {p: {number: 1, bit_rate: 1Mbit, source: "srt://:9000?passphrase=short"}}`,
		"cinema.channels.a.view_hash":    `channels: {a: {number: 1, bit_rate: 1Mbit, view_hash: secret}}`,
		"cinema.channels.a.publish_hash": `channels: {a: {number: 1, bit_rate: 1Mbit, publish_hash: secret}}`,
		"cinema.channels.a.password":     `channels: {a: {number: 1, bit_rate: 1Mbit, password: secret}}`,
	} {
		if _, err := readCinema("cinema:\n  " + text + "\n"); err == nil || !strings.Contains(err.Error(), key) || strings.Contains(err.Error(), "secret,") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A channel's bit rate has the bounds that gateways hold to, and the configuration names them.
func TestCinemaRates(t *testing.T) {
	for rate, right := range map[units.Rate]bool{
		gatewayapi.MinRate - 1: false, gatewayapi.MinRate: true, gatewayapi.MaxRate: true, gatewayapi.MaxRate + 1: false,
	} {
		_, err := readCinema(fmt.Sprintf("cinema:\n  channels: {a: {number: 1, bit_rate: %dbit}}\n", uint64(rate)))
		if (err == nil) != right || !right && !strings.Contains(err.Error(), fmt.Sprintf("from %v to %v", gatewayapi.MinRate, gatewayapi.MaxRate)) {
			t.Errorf("%v: %v", rate, err)
		}
	}
}

// A channel's source is told without its secrets, in "sluice config show" and in what is said of
// a wrong one.
func TestCinemaSourcesAreHidden(t *testing.T) {
	const text = "cinema:\n  channels: {a: {number: 1, bit_rate: 1Mbit, source: %q}}\n"
	c, err := readCinema(fmt.Sprintf(text, "rtsp://me:hush@10.0.0.7/live?token=hush"))
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range []string{config.Render(c), fmt.Sprintf("%v %+v %#v", config.Of[*Section](c), config.Of[*Section](c), config.Of[*Section](c).Channels["a"])} {
		if strings.Contains(shown, "hush") || !strings.Contains(shown, "rtsp://…@10.0.0.7/live?token=…") {
			t.Errorf("shown: %s", shown)
		}
	}
	if all, _ := config.Of[*Section](c).ParsedChannels(); all["a"].Source != "rtsp://me:hush@10.0.0.7/live?token=hush" {
		t.Errorf("the channel's source is %s", all["a"].Source)
	}
	if _, err := readCinema(fmt.Sprintf(text, "rtsp:///live?token=hush")); err == nil || strings.Contains(err.Error(), "hush") {
		t.Errorf("a wrong one: %v", err)
	}
}
