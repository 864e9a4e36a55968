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
	if got, want := Changed(a.Adopt(b), b), []string{"api.max_body", "sample.enabled"}; !reflect.DeepEqual(got, want) {
		t.Errorf("after it was read again: %v, want %v", got, want)
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
