"""A simulator and planner for parallelism strategies of large-model training.

The public names, in the order of the data flow. They are imported when they are first used, so that importing
`planner` (as every command does) costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.answer.budget import Budget as Budget
    from planner.answer.budget import budget as budget
    from planner.answer.budget_assumptions import BudgetChoices as BudgetChoices
    from planner.answer.choices import Choices as Choices
    from planner.answer.compared.comparison import Comparison as Comparison
    from planner.answer.compared.comparison import compare as compare
    from planner.answer.compared.sides import Side as Side
    from planner.answer.compared.sides import sides as sides
    from planner.answer.compared.what_if import WhatIf as WhatIf
    from planner.answer.compared.what_if import what_if as what_if
    from planner.answer.diagnosis.diagnose import diagnose as diagnose
    from planner.answer.diagnosis.records import Asked as Asked
    from planner.answer.dumps import HostReport as HostReport
    from planner.answer.dumps import check_files as check_files
    from planner.answer.dumps import host_report as host_report
    from planner.answer.dumps import nccl_tables as nccl_tables
    from planner.answer.emission import emission as emission
    from planner.answer.evaluate import evaluate as evaluate
    from planner.answer.explanation import explanation as explanation
    from planner.answer.fits import FitReport as FitReport
    from planner.answer.fits import fit_report as fit_report
    from planner.answer.fits import fits as fits
    from planner.answer.largest import Largest as Largest
    from planner.answer.largest import largest as largest
    from planner.answer.link_traffic import PlanTraffic as PlanTraffic
    from planner.answer.link_traffic import link_traffic as link_traffic
    from planner.answer.listing import choice_names as choice_names
    from planner.answer.listing import listing as listing
    from planner.answer.min_gpus import MinGpus as MinGpus
    from planner.answer.min_gpus import min_gpus as min_gpus
    from planner.answer.mixed.answer import MixedAnswer as MixedAnswer
    from planner.answer.mixed.answer import mixed as mixed
    from planner.answer.nearest import Software as Software
    from planner.answer.nearest import fix_text as fix_text
    from planner.answer.plan_files import plan_file_of as plan_file_of
    from planner.answer.plan_files import read_plan as read_plan
    from planner.answer.plan_files import write_plan as write_plan
    from planner.answer.pool.answer import pool as pool
    from planner.answer.pool.trial import PoolChoices as PoolChoices
    from planner.answer.question import Question as Question
    from planner.answer.question import ask as ask
    from planner.answer.ranked_plan import RankedPlan as RankedPlan
    from planner.answer.recommend import recommend as recommend
    from planner.answer.recommendation import Recommendation as Recommendation
    from planner.answer.scaling import Scaling as Scaling
    from planner.answer.scaling import scaling as scaling
    from planner.answer.simulation import Circumstances as Circumstances
    from planner.answer.simulation import SimulatedStep as SimulatedStep
    from planner.answer.simulation import simulated as simulated
    from planner.answer.software import profile_of as profile_of
    from planner.answer.software import profiles_of as profiles_of
    from planner.answer.steps.reading import import_steps as import_steps
    from planner.answer.steps.records import StepsAsked as StepsAsked
    from planner.catalogue.hardware import accelerator as accelerator
    from planner.catalogue.hardware import cluster as cluster
    from planner.catalogue.hardware import network as network
    from planner.catalogue.hardware import node as node
    from planner.catalogue.models import model as model
    from planner.catalogue.models import model_names as model_names
    from planner.catalogue.profiles import profile as profile
    from planner.catalogue.stacks import stack as stack
    from planner.dumps.cluster_toml import cluster_toml as cluster_toml
    from planner.dumps.collectives_csv import csv_text as csv_text
    from planner.dumps.words import lines_of as lines_of
    from planner.errors import FileFormatError as FileFormatError
    from planner.errors import NoFeasiblePlan as NoFeasiblePlan
    from planner.errors import PlannerError as PlannerError
    from planner.errors import SpecError as SpecError
    from planner.estimate.memory import memory_timeline as memory_timeline
    from planner.estimate.memory import memory_use as memory_use
    from planner.estimate.step_time import step_time as step_time
    from planner.estimate.throughput import throughput as throughput
    from planner.quantities import format_bandwidth as format_bandwidth
    from planner.quantities import format_bytes as format_bytes
    from planner.quantities import format_count as format_count
    from planner.quantities import format_seconds as format_seconds
    from planner.search.enumerate import enumerate_plans as enumerate_plans
    from planner.simulate.simulation import Simulation as Simulation
    from planner.simulate.trace import chrome_trace as chrome_trace
    from planner.spec.cluster import Cluster as Cluster
    from planner.spec.model import Model as Model
    from planner.spec.plan import Plan as Plan
    from planner.spec.profile import Profile as Profile
    from planner.spec.workload import Workload as Workload
    from planner.topology.describe import describe as describe
    from planner.topology.describe import link_class as link_class
    from planner.topology.graph import graph as graph
    from planner.topology.group_links import group_links as group_links
    from planner.validate.collectives_report import CollectivesReport as CollectivesReport
    from planner.validate.collectives_report import collectives_report as collectives_report
    from planner.validate.report import RunsReport as RunsReport
    from planner.validate.report import runs_report as runs_report

_MODULES = {
    "model": "planner.catalogue.models",
    "model_names": "planner.catalogue.models",
    "accelerator": "planner.catalogue.hardware",
    "node": "planner.catalogue.hardware",
    "network": "planner.catalogue.hardware",
    "cluster": "planner.catalogue.hardware",
    "stack": "planner.catalogue.stacks",
    "profile": "planner.catalogue.profiles",
    "Model": "planner.spec.model",
    "Workload": "planner.spec.workload",
    "Plan": "planner.spec.plan",
    "Choices": "planner.answer.choices",
    "Question": "planner.answer.question",
    "ask": "planner.answer.question",
    "enumerate_plans": "planner.search.enumerate",
    "graph": "planner.topology.graph",
    "group_links": "planner.topology.group_links",
    "memory_use": "planner.estimate.memory",
    "memory_timeline": "planner.estimate.memory",
    "step_time": "planner.estimate.step_time",
    "throughput": "planner.estimate.throughput",
    "evaluate": "planner.answer.evaluate",
    "recommend": "planner.answer.recommend",
    "Recommendation": "planner.answer.recommendation",
    "mixed": "planner.answer.mixed.answer",
    "pool": "planner.answer.pool.answer",
    "PoolChoices": "planner.answer.pool.trial",
    "fits": "planner.answer.fits",
    "Side": "planner.answer.compared.sides",
    "sides": "planner.answer.compared.sides",
    "compare": "planner.answer.compared.comparison",
    "what_if": "planner.answer.compared.what_if",
    "explanation": "planner.answer.explanation",
    "link_traffic": "planner.answer.link_traffic",
    "write_plan": "planner.answer.plan_files",
    "read_plan": "planner.answer.plan_files",
    "budget": "planner.answer.budget",
    "BudgetChoices": "planner.answer.budget_assumptions",
    "check_files": "planner.answer.dumps",
    "host_report": "planner.answer.dumps",
    "HostReport": "planner.answer.dumps",
    "nccl_tables": "planner.answer.dumps",
    "emission": "planner.answer.emission",
    "fit_report": "planner.answer.fits",
    "FitReport": "planner.answer.fits",
    "largest": "planner.answer.largest",
    "choice_names": "planner.answer.listing",
    "listing": "planner.answer.listing",
    "min_gpus": "planner.answer.min_gpus",
    "MinGpus": "planner.answer.min_gpus",
    "fix_text": "planner.answer.nearest",
    "Software": "planner.answer.nearest",
    "plan_file_of": "planner.answer.plan_files",
    "RankedPlan": "planner.answer.ranked_plan",
    "scaling": "planner.answer.scaling",
    "Scaling": "planner.answer.scaling",
    "Circumstances": "planner.answer.simulation",
    "simulated": "planner.answer.simulation",
    "SimulatedStep": "planner.answer.simulation",
    "cluster_toml": "planner.dumps.cluster_toml",
    "csv_text": "planner.dumps.collectives_csv",
    "format_bandwidth": "planner.quantities",
    "format_bytes": "planner.quantities",
    "format_count": "planner.quantities",
    "format_seconds": "planner.quantities",
    "chrome_trace": "planner.simulate.trace",
    "Cluster": "planner.spec.cluster",
    "describe": "planner.topology.describe",
    "link_class": "planner.topology.describe",
    "collectives_report": "planner.validate.collectives_report",
    "CollectivesReport": "planner.validate.collectives_report",
    "runs_report": "planner.validate.report",
    "RunsReport": "planner.validate.report",
    "diagnose": "planner.answer.diagnosis.diagnose",
    "Asked": "planner.answer.diagnosis.records",
    "lines_of": "planner.dumps.words",
    "PlanTraffic": "planner.answer.link_traffic",
    "Simulation": "planner.simulate.simulation",
    "Budget": "planner.answer.budget",
    "Largest": "planner.answer.largest",
    "Comparison": "planner.answer.compared.comparison",
    "WhatIf": "planner.answer.compared.what_if",
    "profile_of": "planner.answer.software",
    "profiles_of": "planner.answer.software",
    "Profile": "planner.spec.profile",
    "import_steps": "planner.answer.steps.reading",
    "StepsAsked": "planner.answer.steps.records",
    "MixedAnswer": "planner.answer.mixed.answer",
    "PlannerError": "planner.errors",
    "SpecError": "planner.errors",
    "FileFormatError": "planner.errors",
    "NoFeasiblePlan": "planner.errors",
}

__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    """Import a public name's module on first use (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module 'planner' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return __all__
