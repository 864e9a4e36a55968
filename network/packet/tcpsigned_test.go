package packet

import (
	"slices"
	"testing"
)

func TestIsTCPSigned(t *testing.T) {
	plain := []byte{2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7}
	md5 := append([]byte{19, 18}, make([]byte, 16)...)
	ao := append([]byte{29, 16, 1, 1}, make([]byte, 12)...)
	for name, c := range map[string]struct {
		options []byte
		want    bool
	}{
		"nothing":                   {nil, false},
		"plain TCP":                 {plain, false},
		"TCP-MD5":                   {slices.Concat([]byte{1, 1}, md5), true},
		"TCP-MD5 after others":      {slices.Concat(plain, md5), true},
		"TCP-AO":                    {slices.Concat(plain, ao), true},
		"after the end":             {slices.Concat([]byte{0}, md5), false},
		"within another option":     {slices.Concat([]byte{253, 20}, md5), false},
		"an option of no length":    {slices.Concat([]byte{253, 0}, md5), false},
		"an option that has no end": {md5[:10], false},
		"a kind without its length": {[]byte{19}, false},
		"after a kind without rest": {[]byte{1, 1, 29}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := IsTCPSigned(c.options); got != c.want {
				t.Errorf("IsTCPSigned(% x) = %v, want %v", c.options, got, c.want)
			}
		})
	}
}
