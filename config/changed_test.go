package config

import (
	"reflect"
	"testing"
)

func TestChanged(t *testing.T) {
	a, b := sampleController(), sampleController()
	if got := Changed(a, b); len(got) != 0 {
		t.Errorf("the same: %v", got)
	}
	b.Log.Level, b.API.MaxBody = "debug", 4096
	Of[*sampleSection](b).Limit, Of[*sampleSection](b).Enabled = 4, false
	if got, want := Changed(a, b), []string{"api.max_body", "log.level", "sample.enabled", "sample.limit"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestAdopt checks that exactly the settings with the tag reload take effect without a restart, and
// those of a section only while it is enabled.
func TestAdopt(t *testing.T) {
	a, b := sampleController(), sampleController()
	b.Log.Level, b.Log.Format, b.API.MaxBody = "debug", "json", 4096
	Of[*sampleSection](b).Limit, Of[*sampleSection](b).Secret = 4, "x"
	now := Adopt(a, b)
	if got, want := Changed(a, now), []string{"log.level", "sample.limit"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v have taken effect, want %v", got, want)
	}
	if got := Changed(a, sampleController()); len(got) != 0 {
		t.Errorf("the earlier configuration has changed: %v", got)
	}
	for _, section := range []*sampleSection{Of[*sampleSection](a), Of[*sampleSection](b)} {
		section.Enabled = false
		if got, want := Changed(a, Adopt(a, b)), []string{"log.level"}; !reflect.DeepEqual(got, want) {
			t.Errorf("from a section that is or was not enabled: %v have taken effect, want %v", got, want)
		}
		section.Enabled = true
	}
	if got, want := Reloadable(a), []string{"log.level", "api.token_file", "network.hosts.pinned", "sample.limit"}; !reflect.DeepEqual(got, want) {
		t.Errorf("settings %v take effect without a restart, want %v", got, want)
	}
}

// TestCertificatesAreListed checks that the certificates of all sections are listed, including
// those of a mapping's elements.
func TestCertificatesAreListed(t *testing.T) {
	c := sampleController()
	c.API.TLS = TLS{Cert: "a"}
	Of[*sampleSection](c).Peers = map[string]samplePeer{"north": {TLS{Cert: "n"}}, "east": {TLS{Cert: "e"}}, "west": {}}
	var got []string
	for _, x := range c.Certificates() {
		got = append(got, x.Key+"="+x.Cert)
	}
	if want := []string{"api.tls=a", "sample.peers.east.tls=e", "sample.peers.north.tls=n"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
