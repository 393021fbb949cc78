"""List the packages: `highwater`, and the five top-level folders, which are imported as `highwater.spec` and so on.

`highwater_kafka` has what must work if another distribution owns the package `highwater`.
"""

from setuptools import find_packages, setup

FOLDERS = ("spec", "reference", "conformance", "fuzz", "reports")
NOT_SHIPPED = ("tests", "tests.*", "*.tests", "*.tests.*", "experiments.figures", "soak")

packages = ["highwater", *(f"highwater.{name}" for name in find_packages("highwater", exclude=NOT_SHIPPED))]
for folder in FOLDERS:
    packages += [
        f"highwater.{folder}",
        *(f"highwater.{folder}.{name}" for name in find_packages(folder, exclude=NOT_SHIPPED)),
    ]

package_dir = {"highwater_kafka": "highwater_kafka", "highwater": "highwater"}
package_dir |= {f"highwater.{name}": name for name in FOLDERS}
setup(
    packages=["highwater_kafka", *packages, "highwater.examples"],
    package_dir=package_dir | {"highwater.examples": "examples"},
)
