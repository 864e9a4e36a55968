package api

import (
	"runtime"
	"strings"
	"testing"
)

// What a body costs is linear in its size: one with as many values as there may be, below the
// longest key that there may be, and one that is refused.
func TestInputCost(t *testing.T) {
	const most = 150 // bytes of memory for each byte of a body: values of two bytes are what costs most
	for name, body := range map[string]string{
		"many values":    `{"` + strings.Repeat("k", 1000) + `":[` + strings.Repeat("1,", 49_000) + `1]}`,
		"many lists":     `[` + strings.Repeat("[],", 24_000) + `1]`,
		"a long key":     `{"` + strings.Repeat("k", 500_000) + `":[` + strings.Repeat("1,", 250_000) + `1]}`,
		"nested lists":   strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
		"nested objects": strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			var v any
			runtime.ReadMemStats(&before)
			err := unmarshal([]byte(body), &v)
			runtime.ReadMemStats(&after)
			if got := (after.TotalAlloc - before.TotalAlloc) / uint64(len(body)); got > most {
				t.Errorf("a body of %d bytes (refused: %v) took %d bytes for each of them, want at most %d", len(body), err, got, most)
			}
		})
	}
}
