"""Exports in several threads of one process."""

from concurrent.futures import ThreadPoolExecutor

from exporter.prove.written import WrittenModels


def test_threads_load_written_steps_at_the_same_time(export):
    report = export()
    plan, folders = report.plan, report.paths
    with ThreadPoolExecutor(4) as threads:
        loaded = [*threads.map(lambda _: WrittenModels(plan, folders), range(12))]
    assert len(loaded) == 12
