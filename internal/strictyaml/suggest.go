package strictyaml

import (
	"fmt"
	"slices"
	"strings"
)

// Suggest returns a hint for an unknown key: the nearest known key or, if none is near, all known
// keys.
func Suggest(key string, known []string) string {
	if near := Nearest(key, known, 2); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "known here: " + strings.Join(known, ", ")
}

// Nearest returns the known name with the smallest edit distance from name, or "" if that distance
// is larger than most. It ignores case.
func Nearest(name string, known []string, most int) string {
	if len(name) > maxName {
		return ""
	}
	best, distance := "", most+1
	for _, k := range slices.Sorted(slices.Values(known)) {
		if n := editDistance(strings.ToLower(name), strings.ToLower(k)); n < distance {
			best, distance = k, n
		}
	}
	return best
}

// maxName is the longest name, in bytes, for which Nearest searches. A longer one is no misspelt
// name.
const maxName = 100

// editDistance returns the number of letters to insert, delete or replace to change a into b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
