package ovsdb

import (
	"errors"
	"testing"
)

// What is wrong at other ports is none of a class's business.
func TestConcerning(t *testing.T) {
	single := PortErrors{1: ErrForeign, 2: ErrNoPort}
	if err := errorsOf(single, []uint32{3}); err != nil {
		t.Error(err)
	}
	if err := errorsOf(single, []uint32{2, 3}); !errors.Is(err, ErrNoPort) || errors.Is(err, ErrForeign) {
		t.Error(err)
	}
	if err := errorsOf(ErrDown, nil); !errors.Is(err, ErrDown) {
		t.Error(err)
	}
}
