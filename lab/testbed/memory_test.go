package testbed

import (
	"os"
	"testing"
)

func TestPeakMemory(t *testing.T) {
	if n, err := parsePeak("Name:\tx\nVmHWM:\t   12 kB\nVmRSS:\t    8 kB\n"); err != nil || n != 12<<10 {
		t.Errorf("%d bytes, %v, want %d", n, err, 12<<10)
	}
	for _, status := range []string{"", "VmHWM:\tmuch kB\n"} {
		if n, err := parsePeak(status); err == nil {
			t.Errorf("%q has a peak of %d", status, n)
		}
	}
	if err := ResetPeak(os.Getpid()); err != nil {
		t.Skip(err) // This kernel does not support it.
	}
	before, err := PeakMemory(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 64<<20)
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	if after, err := PeakMemory(os.Getpid()); err != nil || after < before+int64(len(b))/2 {
		t.Errorf("%d bytes before, %d with %d more, %v", before, after, len(b), err)
	}
}
