package lab

import "testing"

func TestOriginalOutlivesKilledLabs(t *testing.T) {
	s := sysctlState{Original: "212992", Labs: []string{t.TempDir()}} // a lab whose record is gone
	if !s.hold("next", "16777216") {
		t.Error("a lab that left no record still counts")
	}
	if s.Original != "212992" {
		t.Errorf("the machine's own value is now taken to be %s", s.Original)
	}
}
