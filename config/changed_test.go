package config

import (
	"reflect"
	"testing"
)

func TestChanged(t *testing.T) {
	a, b := DefaultController(), DefaultController()
	if got := Changed(a, b); len(got) != 0 {
		t.Errorf("the same: %v", got)
	}
	b.Log.Level, b.API.MaxBody = "debug", 4096
	b.Handover.Domain = "north"
	if got, want := Changed(a, b), []string{"api.max_body", "handover.domain", "log.level"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got, want := Changed(a.Adopt(b), b), []string{"api.max_body", "handover.domain"}; !reflect.DeepEqual(got, want) {
		t.Errorf("after it was read again: %v, want %v", got, want)
	}
}
