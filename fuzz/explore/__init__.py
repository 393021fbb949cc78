"""Drawn walks on any target (`highwater explore`): Hypothesis draws and shrinks the paths of the suite's programs.

`ground` walks one path on a target · `strategies` how paths are drawn · `explorer` what is tried next, and the
smallest path of each difference · `simplify` shrinks the choices within steps · `met` what programs met on the
reference · `finding` the folder of a difference · `command_line` the command.

Theory of operation
-------------------
A *program* (`conformance/cases/programs.py`) is a case of the suite whose choices are drawn: it compares each reply
with a model of the protocol. A *path* holds all of them: a seed for what is chosen outside of steps, and for each
step of each loop its number and a seed. Hypothesis draws paths and shrinks them: it leaves out steps, and replaces
seeds by 0, with which the first of everything is chosen. No step depends on the choices of another, so what is left
stays the same. `simplify` then writes down the choices that the seeds had made, and replaces them one by one.

Every walk uses fresh names, or in virtual time a fresh world, so that a difference is repeated by walking its path
again. The rules are stated by programs and models alone: nothing here knows what a broker must answer.
"""
