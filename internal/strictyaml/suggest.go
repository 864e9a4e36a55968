package strictyaml

import (
	"fmt"
	"slices"
	"strings"
)

// Suggest says what may have been meant by a key that is none of those that are known: the
// nearest, or else all of them.
func Suggest(key string, known []string) string {
	if near := Nearest(key, known, 2); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "known here: " + strings.Join(known, ", ")
}

// Nearest is the name that has the fewest letters to insert, delete or replace, if those are
// no more than most; else "". Case does not matter.
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

// maxName is the length of a name beyond which it is none that was mistyped.
const maxName = 100

// editDistance is the number of letters to insert, delete or replace.
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
