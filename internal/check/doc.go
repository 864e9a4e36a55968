// Package check holds the house rules of the tree as code: which package may import which,
// that tests neither sleep nor depend on how fast the machine is, that events, tests and
// files that the documentation names exist, and that the commands printed in the README and
// in docs/ work. What a linter of others can check is not here (make lint).
//
// Each rule is a function from a [Tree] to a list of [Problem] values, so that it is tested
// twice: on small trees that break it, and on the repository itself, which must not.
package check
