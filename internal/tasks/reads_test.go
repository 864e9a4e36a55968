package tasks

import (
	"context"
	"errors"
	"os"
	"testing"
)

// A read that waits ends with its context; the next one has what has come since.
func TestInterruptReads(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	release := InterruptReads(ctx, r)
	cancel()
	b := make([]byte, 1)
	if _, err := r.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v", err)
	}
	release()
	if _, err := w.Write([]byte{7}); err != nil {
		t.Fatal(err)
	}
	defer InterruptReads(t.Context(), r)()
	if _, err := r.Read(b); err != nil || b[0] != 7 {
		t.Errorf("%v, %v", b, err)
	}
}
