// Package check implements the rules of this repository as code: which package may import which;
// that tests neither sleep nor depend on the speed of the machine; that events, tests and files
// that the documentation names exist; and that the commands printed in the README and in docs/
// work. Rules that a public linter can check are not here, but in make lint.
//
// Each rule is a function from a [Tree] to a list of [Problem] values. It is tested twice: on small
// trees that break it, and on the repository itself, which must not break it.
package check
