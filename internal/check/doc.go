// Package check holds the house rules of the tree as code: which package may
// import which, how long a file may be, what must be documented, how metrics
// are named, and that the commands printed in the README and in docs/ work.
//
// Each rule is a function from a [Tree] to a list of [Problem] values, so that
// it is tested twice: on small trees that break it, and on the
// repository itself, which must not.
package check
