package pause

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if For(time.Hour, "this is about time"); time.Since(began) != time.Hour {
			t.Errorf("%v have passed", time.Since(began))
		}
		defer func() {
			if recover() == nil {
				t.Error("no reason was needed")
			}
		}()
		For(time.Hour, "")
	})
}
